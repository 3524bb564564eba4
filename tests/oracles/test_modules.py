"""The table of mlx-lm's modules against the installed package, which only a child process may import."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata

import pytest

from engine import errors
from oracles.modules import ALIASES, ARCHITECTURE_ALIASES, GROUPS, MLX_LM, module_of, modules

# olmo ends the process that imports it, so modules are read, not imported.
LISTING = """
import ast, json, pathlib, mlx_lm.models, mlx_lm.utils as utils
found = []
for path in pathlib.Path(mlx_lm.models.__file__).parent.glob("*.py"):
    classes = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}
    bases = {alias.asname or alias.name for node in ast.walk(ast.parse(path.read_text()))
             if isinstance(node, ast.ImportFrom) for alias in node.names}
    if "Model" in classes | bases and {"ModelArgs", "Args"} & (classes | bases):
        found.append(path.stem)
print(json.dumps([sorted(found), utils.MODEL_REMAPPING, [[*k, v] for k, v in
                  utils.MODEL_ARCHITECTURE_REMAPPING.items()]]))
"""


def test_the_table_is_the_installed_package() -> None:
    assert metadata.version("mlx-lm") == MLX_LM
    done = subprocess.run([sys.executable, "-c", LISTING], check=True, capture_output=True, text=True)
    names, aliases, by_architecture = json.loads(done.stdout.splitlines()[-1])
    assert sorted(modules()) == names
    assert aliases == ALIASES
    assert {(kind, arch): target for kind, arch, target in by_architecture} == ARCHITECTURE_ALIASES


def test_every_module_is_in_one_group_and_one_issue() -> None:
    listed = [name for group in GROUPS.values() for name in group.modules]
    assert len(listed) == len(set(listed)) == len(modules()) == 126
    assert sum(module.issue == 3 for module in modules().values()) == 88
    assert set(ALIASES.values()) | set(ARCHITECTURE_ALIASES.values()) <= set(listed)
    assert modules()["llama"].aliases == ("mistral", "iquestcoder", "xverse")
    assert modules()["bailing_moe_v3"].aliases == ("bailing_hybrid (BailingMoeV3ForCausalLM)",)


def test_module_of_a_config() -> None:
    assert module_of({"model_type": "mistral"}) == "llama"
    assert module_of({"model_type": "qwen3"}) == "qwen3"
    hybrid = {"model_type": "bailing_hybrid"}
    assert module_of(hybrid) == "bailing_hybrid"
    assert module_of(hybrid | {"architectures": ["BailingMoeV3ForCausalLM"]}) == "bailing_moe_v3"
    with pytest.raises(errors.UnknownField, match="gpt9"):
        module_of({"model_type": "gpt9"})

"""The engine's front: load a model, then run requests on it. (Signatures first; see the module's tests.)"""

from __future__ import annotations

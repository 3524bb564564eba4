"""Methods: how rows advance. One literal table, name -> "module:symbol"."""

METHODS: dict[str, str] = {"decode": "engine.method.decode:Decode"}

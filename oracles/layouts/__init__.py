"""Functions that give a model its original hub layout, one file a group of recipes."""

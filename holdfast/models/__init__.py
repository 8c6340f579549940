"""How the APIs of models are spoken, one package for each, all behind the protocol `Model`."""

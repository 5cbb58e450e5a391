"""What a visitor typed: checked, run, explained.

Read ``run`` first: it takes the text through ``source`` (what may be run), ``output`` (what it prints and warns about) and
``lines`` (where it is). ``own_model`` finds the model, the batch and the loss that a program defines;
``explain`` says in plain words what ended a program.
"""

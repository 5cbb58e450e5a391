"""A program watched for what its tensors are and whose memory they have.

``tensor_trace`` sees every operation and hands on ``calls``; ``states`` remembers what a tensor was and from what it came,
``naming`` what the program calls it, ``arrays`` what NumPy does to the same memory. ``checks`` runs the looks at ``shapes`` and
``values`` while they are there, ``endings`` says what shows only at the end, with ``statements`` read from the text.
``assemble`` makes plain data of it all.
"""

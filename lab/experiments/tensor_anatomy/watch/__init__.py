"""A program watched for what its tensors are and whose memory they have.

``tensor_trace`` sees every operation, ``states`` remembers what a tensor was and from what it came, ``naming`` what the program
calls it, ``arrays`` what NumPy does to the same memory, ``checks`` looks at values while they are there.
"""

"""tf.train.Example and SequenceExample, to and from Python and NumPy: pure functions over bytes.

``codec`` and ``features`` make and read single ones, ``schema`` gives them types and reads them by batches, and
``declared`` makes them of a class's attributes. Beneath: ``wire`` reads the format, ``values`` knows what a Python
value becomes, ``columns`` reads many records at once, ``kinds`` and ``dtypes`` are what a schema is made of.
"""

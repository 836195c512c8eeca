"""tf.train.Example and SequenceExample, to and from Python and NumPy: pure functions over bytes.

``codec`` and ``features`` make and read single ones, ``schema`` gives them types and reads them by batches, and
``declared`` makes them of a class's attributes. Beneath: ``wire`` and ``varints`` read the format, ``values`` knows
what a Python value becomes, ``columns`` and ``scan`` read many records at once, ``entries``, ``kinds``, ``compound``
and ``dtypes`` are what a schema is made of, ``infer`` finds one, ``fields`` is what a class declares.
"""

"""PTX opcodes of the software GPU, value by value against an independent reference.

`forms.py` says what a tested opcode is; the modules `*_forms.py` hold the tables, one line per family; `device.py`
runs them. `test_every_opcode.py` counts: each opcode that the engine knows is in a table, or in `elsewhere.py`
with the test that covers it.
"""

"""`headway top`: the live state of the system in a terminal.

`command` asks the API every two seconds and shows the frame that `frame` draws, a pure function of
the answer and the size of the window.
"""

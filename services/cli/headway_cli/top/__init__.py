"""`headway top`: how things stand, over and over, in a terminal.

`command` asks the API every two seconds and shows the frame that `frame` draws of the answer; a
frame is a pure function of what was told and of the size of the window. `keyboard` makes a key
count as soon as it is pressed, and gives the terminal back as it was, whatever ends the view.
"""

"""`headway top`: asks the API every two seconds and shows the live view in a terminal."""

lessons = ()

print("hello from " .. _VERSION)

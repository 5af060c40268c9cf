"""Operations on an application's topics and directories: discover, inspect, dump."""

-- The tutorials' resnet.py: the library has that network.
return require "mslua.models.resnet"

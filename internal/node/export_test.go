package node

// ContainerBytes reads the file that says what a container may have.
var ContainerBytes = containerBytes

package node

// CollectLimit is what the heap may take in a container of so many bytes.
var CollectLimit = collectLimit

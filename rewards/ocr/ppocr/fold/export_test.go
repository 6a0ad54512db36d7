package fold

// For the tests of the package alone.
type Report = report

var Model = model

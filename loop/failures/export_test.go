package failures

// For the tests of the package alone.
const MaxRecords = maxRecords

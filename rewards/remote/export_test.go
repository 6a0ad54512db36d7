package remote

// The two readers of JSON.
var (
	ParseJSON   = parseJSON
	ParseSlowly = parseSlowly
)

package sim

// For the tests of the package alone.
const (
	ModePipeline          = modePipeline
	ModeStreamingPipeline = modeStreamingPipeline
	OrderCompletion       = orderCompletion
	OrderIndex            = orderIndex
)

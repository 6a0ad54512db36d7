package engines

// Output is output.
type Output = output

// OpenOutput is openOutput.
func OpenOutput(folder, name string, limit int64) *Output { return openOutput(folder, name, limit) }

// Close is close.
func (o *output) Close() { o.close() }

package media

// InUse is how many bytes of the budget are out.
func (d *Decoder) InUse() int64 { return d.budget.inUse() }

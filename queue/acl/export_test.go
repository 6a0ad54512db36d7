package acl

// AccountName is the account that gateways and workers share on the server.
const AccountName = accountName

// Grant is one subject that a role may publish or subscribe to.
type Grant = grant

// Grants returns what a role may do, each subject with its reason.
func Grants(role Role) (publish, subscribe []Grant) { return grantsOf(role) }

// Permissions returns the subjects alone.
func Permissions(role Role) (publish, subscribe []string) { return permissionsOf(role) }

// Users returns how many users there are.
func (o Options) Users() int { return len(o.nkeys) }

// For the tests of the package alone.
var ErrFile = errFile

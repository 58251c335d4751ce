package embed

import "perdure/partition/retention"

// checkRetention checks the rules of the retention.
func checkRetention(value any) string {
	if _, err := retention.ParsePolicy(*value.(*[]string)); err != nil {
		return err.Error()
	}
	return ""
}

// retention is the policy of the settings, which were checked.
func (c *Config) retention() retention.Policy {
	p, _ := retention.ParsePolicy(c.Retention)
	return p
}

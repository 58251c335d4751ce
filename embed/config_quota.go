package embed

import "perdure/partition/quota"

// checkQuota checks the namespaces' quotas.
func checkQuota(value any) string {
	if _, err := quota.Parse(*value.(*[]string)); err != nil {
		return err.Error()
	}
	return ""
}

// quotas are those of the settings, which were checked.
func (c *Config) quotas() quota.Quotas {
	q, _ := quota.Parse(c.Quota)
	return q
}

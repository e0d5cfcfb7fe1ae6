"""After a crash, an error, a power loss, a kill or a race, the dataset is the old one or the new one."""

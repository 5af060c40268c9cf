"""
### Recover the global stores of Kafka Streams applications

For applications that end in `ERROR`, or restart again and again, because of their global stores: a topic was truncated
or recreated, an offset is not known, a store was open when the process was killed under exactly-once. Invalid stores
are rebuilt from their topics; valid stores and all tasks are kept.

**Stop the applications first**, and keep them stopped until the run has ended. The run takes the applications' lock; if
another process holds it, the run is refused and names that process.

| task | what it does |
| --- | --- |
| `read_directories` | checks the parameters; one entry for each state directory |
| `plan` | one for each directory: what the next start would do with each global store, and what would be rebuilt |
| `approve` | shows all plans as one page and waits for a person: *Required Actions*. No answer in time rejects |
| `recover.apply` | one for each directory: applies the approved plan |
| `recover.verify` | one for each directory: inspects it again; nothing may be left to do |
| `outcome` | the outcome of each directory; fails if one was not changed as planned |

**A directory that is refused fails by itself**, with the reasons in the log of its `plan`: the topic of a store does
not exist, or is not compacted (`accept_uncompacted` accepts that). The others continue. An application whose spec
declares no global store has nothing to do. If there is nothing to do at all, `approve` is skipped and logs why. With
the parameter `approve` set to `none` plans are applied without approval, except plans that may remove rows.

**The approval is of the plan's id.** A directory or a topic that has changed since has another plan, and is refused.
Replaced files are kept for a week. Retries and cleared tasks resume from there.

The worker needs access to the directories and to the brokers. *Recover global stores* (`docs/recover-global.md`)
explains each finding.
"""

from __future__ import annotations

from statecore.airflow.directory_change.dag import directory_change_dag

dag = directory_change_dag("recover", __doc__)

# ruff: noqa
"""old module (without ``statecore.``) -> new module."""

M = {}


def move(old_pkg, new_pkg, names, **renames):
    for n in names.split():
        M[f"{old_pkg}.{n}"] = f"{new_pkg}.{n}"
    for o, n in renames.items():
        M[f"{old_pkg}.{o}"] = f"{new_pkg}.{n}"


# objectstore
move(
    "blobs",
    "objectstore",
    "base checksum directory directory_pointers pointers probe rights s3 s3_errors s3_location s3_pointers s3_probe s3_requests s3_waiting",
)
# stores
move(
    "stores",
    "stores",
    "",
    forks="fork_safety",
    descriptors="fd_paths",
    rocksdb_changes="rocksdb_writes",
    rocksdb_instant="rocksdb_snapshot",
    rocksdb_links="rocksdb_readonly_links",
    rocksdb_moments="rocksdb_checkpoint",
    rocksdb_ownership="directory_lock",
    rocksdb_witness="manifest_guard",
    staged="write_buffer_store",
    wrapped="delegating_store",
    rocksdb_elsewhere="rocksdb_db_paths",
    unfinished_creation="interrupted_creation",
)
# images
move(
    "images",
    "images",
    "",
    cuts="run_ranges",
    packed_records="row_batches",
    slices="key_range_merge",
    spilled_table="external_key_table",
    fold_policy="compaction_policy",
    merge_policy="read_amplification",
)
# statedir
move(
    "placement",
    "statedir",
    "application_lock apply custom_stores database_state foreign_files journal manifest_check mounts open_stores plan shared_files siblings state_directory store_on_disk work_directory",
    assembly="task_assembly",
    contents="task_layout",
    exchange="task_swap",
    kept_stores="carried_stores",
    moved_aside="quarantine",
    ownership="file_ownership",
    owners="changelog_owner",
    settlement="journal_recovery",
    trees="file_trees",
)
move(
    "maintenance",
    "statedir",
    "",
    layout="store_places",
    database="readonly_database",
    leftovers="offset_files",
    store_standing="store_offsets",
    rights="permissions",
    flushes="flush_times",
)
# tasks
move(
    "runtime",
    "tasks",
    "task task_directory task_offsets task_stores checkpoint_policy partial_stores store_errors offset_sums standby_task changelog_ends",
    unclean="unclean_stores",
    followed_store="standby_store",
    followed_logs="standby_log_state",
    unfollowed_stores="excluded_stores",
    closed_offsets="clean_close_record",
    startup="startup_tasks",
)
move(
    "processor",
    "tasks",
    "active_context active_task bounded_producer change_logging commit_policy kafka_commits properties property_values",
)
move(
    "processor",
    "tasks.restoration",
    "columnar_records consumer_records preconditions records store_kinds",
    restoring="restore",
)
# global stores
move(
    "runtime",
    "global_stores",
    "",
    global_databases="databases",
    global_kept="backups",
    global_offsets="offset_validation",
    global_patience="retry_policy",
    global_places="paths",
    global_reading="reader",
    global_settings="settings",
    global_state="state",
    global_store="store",
    global_stores="manager",
    global_surroundings="context",
    global_telling="listener_queue",
    global_topics="topic_ids",
    global_views="views",
)
# standby
move(
    "runtime",
    "standby",
    "group",
    untold_stores="unreplicated_stores",
    group_consumer="kafka_group",
    assigned="assignment_result",
    cleaning="state_cleaner",
)
move("runtime.assignment", "standby.assignment", "assignor leader model protocol", spread="balance")
move("runtime.assignment", "jobs", "", static="instance_share")
move(
    "jobs",
    "standby",
    "",
    standby="service",
    standby_request="request",
    standby_report="report",
    standby_bases="bootstrap",
    standby_fleet="group_member",
    standby_tasks="eligible_tasks",
    standby_wanted="task_selection",
    kept_tasks="task_manager",
    kept_news="messages",
    round_news="round_messages",
    kept_metrics="metrics",
)
move(
    "jobs",
    "standby.promote",
    "",
    hand_over="run",
    hand_over_judging="changelog_check",
    hand_over_look="plan",
    hand_over_release="release_check",
    hand_over_report="report",
    hand_over_request="request",
    hand_over_sides="directory_check",
    hand_over_standing="store_offsets",
)
# jobs core
move(
    "jobs",
    "jobs",
    "answers attempt engine failures frozen_plan job staging staging_place repository_place report_head report_index worker in_process starter processes preloading task_names target_release",
    declaration="fields",
    values="field_types",
    home="job_files",
    command="program",
    on_directory="directory_change",
    approval="plan_id",
    changes="directory_changes",
    run_keeper="run_sink",
    under_way="in_progress_marker",
)
# restore
move(
    "jobs",
    "jobs.restore",
    "request plan planning range_tasks merge_tasks stages selection report advance advance_request version_tasks planned_tails store_to_build plan_request",
    restore="run",
    restore_plan="plan_with_bases",
    parents="bases",
    directory_parents="directory_bases",
    snapshot_parents="snapshot_bases",
    restore_candidates="base_candidates",
    earlier_restore="resume",
    estimate="estimate",
    room="disk_estimate",
    placing="placement_request",
    publishing="publish",
    reconciling="reconcile",
    built_here="local_build",
    image_tasks="build_tasks",
    notes="plan_warnings",
    reporting="report_stores",
    restored_store="restored_store",
    restores="history",
    seen_horizons="delete_horizons",
    versioned_start="versioned_start",
    tails="tail_check",
)
# checkpoint
move(
    "jobs",
    "jobs.checkpoint",
    "",
    checkpoint="run",
    checkpoint_plan="plan",
    checkpoint_request="request",
    checkpoint_news="changed_tasks",
    due="schedule",
    follow="service",
    judging="validate_tails",
)
move(
    "jobs",
    "jobs.compact",
    "",
    fold="run",
    fold_after="after_checkpoint",
    fold_merges="merge",
    fold_plan="plan",
    fold_report="report",
)
move(
    "jobs",
    "jobs.fetch",
    "",
    fetch="run",
    fetch_contents="digests",
    fetch_report="report",
    fetch_request="request",
    fetch_snapshot="select",
    fetch_todo="plan",
    fetch_topics="topic_check",
    fetched_files="files",
    fetches="history",
    store_to_fetch="store_to_fetch",
)
move(
    "jobs",
    "jobs.backup",
    "",
    snapshot="run",
    snapshot_changed="changed_files",
    snapshot_copies="copies",
    snapshot_logs="changelog_check",
    snapshot_parts="task_manifests",
    snapshot_problems="problems",
    snapshot_report="report",
    snapshot_request="request",
    snapshot_scratch="scratch_dir",
    snapshot_stores="stores",
)
move(
    "jobs",
    "jobs.diff",
    "",
    diff="run",
    diff_reference="reference",
    diff_report="report",
    diff_request="request",
    diff_scratch="scratch_dir",
    diff_tasks="tasks",
)
move("maintenance", "jobs.diff", "row_diff store_diff")
# repository
move(
    "repository",
    "repository",
    "",
    agreement="compatibility",
    believed="blob_verification",
    composition="snapshot_composition",
    contents="content_digests",
    examination="verification",
    held="space_usage",
    keeping="retention",
    looking="listing",
    lost_mark="repository_id_recovery",
    others="conflicts",
    part_documents="task_manifest_documents",
    part_names="task_manifest_names",
    part_structure="task_manifest_structure",
    partial_file="resumable_file",
    repair="head_repair",
    seen="head_reader",
    shelf="application_repository",
    taken_over="inherited_blobs",
)
# doctor
move(
    "maintenance",
    "doctor",
    "doctor doctor_topics findings topic_findings",
    catalogue="finding_catalog",
    judging="run_checks",
    global_starts="global_store_outcome",
    topic_samples="changelog_comparison",
    current_rows="row_reader",
    stored_offsets="stored_offsets",
    sight="inspection_reader",
    database_sight="database_inspection",
    views="views",
    inspection="inspect",
    offset_lags="task_lag",
)
move(
    "maintenance.checks",
    "doctor.checks",
    "custom damage declared families grace_buffer offset_files releases segments",
    bookkeeping="offsets",
    circumstances="context",
    gone="missing_stores",
    surroundings="stray_files",
)
move("jobs", "jobs.diagnose", "", examine="run", examine_job="program", examine_request="request")
move(
    "jobs",
    "jobs.repair",
    "",
    repair="run",
    repair_report="report",
    repair_request="request",
    repair_leftovers="leftovers",
    repair_rest="resume",
    rebuild_logs="rebuild_logs",
)
move("maintenance", "doctor", "", mending="repair_actions", repairs="repair_plan")
move(
    "jobs",
    "jobs.recover_global",
    "",
    recover_global="run",
    recover_global_job="program",
    recover_global_request="request",
)
move(
    "jobs",
    "jobs.migrate",
    "",
    migrate="run",
    migrate_owner="owner_check",
    migrate_report="report",
    migrate_request="request",
    migrate_summary="summary",
    convert_tasks="tasks",
)
move(
    "maintenance.conversion",
    "conversion",
    "downward model plan rows step upward",
    claims="offset_entries",
    lateness="flush_order",
    sight="inspection",
)
move("maintenance", "conversion", "", converting="execute")
# discover
move(
    "maintenance",
    "discover",
    "answers survey discover topology group_topology",
    changelogs="changelog_inference",
    deciding="kind_inference",
    evidence="kind_evidence",
    recognise="kind_detection",
    drafts="spec_draft",
    samples="changelog_sample",
    contradicted_kinds="contradicted_kinds",
)
# dump
move("maintenance", "dump", "deserialisers dump", dump_output="output")
# cli, airflow
move("cli", "cli", "", asking="prompts", info_repository="repository_info", repository_views="repository_tables")
move("airflow", "airflow", "", announcing="asset_events", deciding="due_applications")


def re(old, new):
    M[old] = new


# stores/rocksdb
for o, n in dict(
    rocksdb="store",
    rocksdb_changes="writes",
    rocksdb_commit="commit",
    rocksdb_directory="directory",
    rocksdb_elsewhere="db_paths",
    rocksdb_errors="errors",
    rocksdb_families="families",
    rocksdb_files="files",
    rocksdb_handles="handles",
    rocksdb_instant="snapshot",
    rocksdb_links="readonly_links",
    rocksdb_moments="checkpoint",
    rocksdb_options_file="options_file",
    rocksdb_ownership="directory_lock",
    rocksdb_reading="reading",
    rocksdb_scan="scan",
    rocksdb_witness="manifest_guard",
    options="options",
    config_setter="config_setter",
    file_limits="file_limits",
    forks="fork_safety",
    memory="memory",
    descriptors="fd_paths",
    unfinished_creation="interrupted_creation",
).items():
    re(f"stores.{o}", f"stores.rocksdb.{n}")
for o in [
    "kernel",
    "kernel_source",
    "hash_source",
    "merged_kernel",
    "merged_source",
    "order_source",
    "reconcile_kernel",
    "reconcile_source",
    "sst_source",
    "spill_source",
    "table_source",
    "addresses",
]:
    re(f"images.{o}", f"images.kernels.{o}")
for o, n in dict(
    store_page="store_page",
    store_markup="store_markup",
    store_style="store_style",
    progress_page="progress_page",
    restored="state_view",
    refusals="failing_applications",
).items():
    re(f"airflow.{o}", f"airflow.ui.{n}")
for o, n in dict(
    migrations="migration_runs",
    migration_plans="plans",
    migration_values="xcom_values",
    recoveries="recovery_runs",
    approval="approval",
    approved_steps="dag",
    migrate_operator="migrate_operator",
    recover_operator="recover_operator",
    examination="verify",
).items():
    re(f"airflow.{o}", f"airflow.directory_change.{n}")
for o, n in dict(
    parents="base",
    directory_parents="directory_bases",
    snapshot_parents="snapshot_bases",
    seen_horizons="delete_horizons",
    planned_tails="planned_tails",
    tails="tail_check",
    reconciling="reconcile",
).items():
    re(f"jobs.{o}", f"jobs.bases.{n}")
for o, n in dict(
    stages="stages",
    range_tasks="range_tasks",
    merge_tasks="merge_tasks",
    image_tasks="image_tasks",
    store_to_build="store_to_build",
    version_tasks="version_tasks",
    run_keeper="run_sink",
    staging="staging",
    staging_place="staging_place",
    repository_place="repository_place",
    preloading="preloading",
    versioned_start="versioned_start",
    publishing="publish",
).items():
    re(f"jobs.{o}", f"jobs.pipeline.{n}")
for o, n in dict(
    plan="plan",
    planning="planning",
    frozen_plan="frozen_plan",
    estimate="estimate",
    room="disk_estimate",
    notes="plan_warnings",
    selection="selection",
    plan_request="plan_request",
).items():
    re(f"jobs.{o}", f"jobs.planning.{n}")
for o, n in dict(
    report_head="report_head",
    report_index="report_index",
    restores="restores",
    changes="directory_changes",
    fetches="fetches",
    restored_store="restored_store",
).items():
    re(f"jobs.{o}", f"jobs.history.{n}")

PACKAGES = {
    "objectstore": "Immutable blobs, and pointers that are replaced by compare-and-swap: in a directory, or in S3.",
    "stores.rocksdb": "RocksDB: the store of one directory, and everything that opens, reads, copies or locks one.",
    "images.kernels": "Numba kernels of building: what they compute (``*_source``), and how they are called (``*kernel``).",
    "statedir": "An application's state directory: what lies in it, its lock and owner, and the journalled swap of tasks.",
    "tasks": "A task: its stores and their offsets, as an active task that processes and as a standby task that follows.",
    "tasks.restoration": "Restoration of a store from its changelog, by either reader of changelogs.",
    "global_stores": "Global stores that follow their topics, and recover by themselves (KIP-406).",
    "standby": "Standby tasks of a process or a group of them: assignment, bootstrap, service, promotion.",
    "standby.assignment": "Which member of a group holds which tasks (KIP-441): pure functions.",
    "standby.promote": "Promotion: standby tasks take the place of the tasks of an application that is down.",
    "discover": "Which stores an application has, and of which kind, told by its topics, topology and directory.",
    "conversion": "A task directory converted between the layouts of releases of Kafka Streams: plan, execution, check.",
    "doctor": "Inspection of state directories: findings, the checks that make them, and what repairs them.",
    "doctor.checks": "From an inspection to findings: pure functions, one idea a module.",
    "dump": "The rows of a store, decoded, as Arrow batches and as files.",
    "jobs.planning": "Plans of jobs: offsets and stores, frozen before anything is read.",
    "jobs.bases": "Bases: stores of a snapshot or a directory, above which only the tail of a changelog is read.",
    "jobs.pipeline": "The two stages of a build: ranges to runs, runs to images; and where they stage their results.",
    "jobs.restore": "Restore and advance: stores rebuilt from changelogs, placed or published.",
    "jobs.checkpoint": "Checkpoint: the newest snapshot, advanced by the tails of the changelogs.",
    "jobs.compact": "Compaction: runs of a snapshot merged, so that they stay few.",
    "jobs.fetch": "Fetch: from a repository into a state directory.",
    "jobs.backup": "Backup: a state directory published as a snapshot, file by file.",
    "jobs.diff": "Diff: a state directory compared with another one, a snapshot or its changelogs.",
    "jobs.history": "What jobs have reported: of one directory, and of all.",
    "jobs.diagnose": "Diagnosis of state directories, as a job.",
    "jobs.repair": "Repair of a state directory, as a job.",
    "jobs.migrate": "Migration of a state directory to another release of Kafka Streams, as a job.",
    "jobs.recover_global": "Recovery of global stores, as a job.",
    "airflow.ui": "Pages of the Airflow UI: state stores, and progress.",
    "airflow.directory_change": "Dags that plan, have approved, and carry out changes of state directories.",
}

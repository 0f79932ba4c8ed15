"""``docs/explanation/faults.md``: for each fault of the catalogue, the tests that show it.

Names of `make faults` are rows of `tests/faults/table.py`; a test there keeps the lists together.
"""

from typing import Final, NamedTuple

FAULTS_PAGE: Final = "explanation/faults.md"
"""Where the page is, below `docs`."""

INTEGRATION: Final = "tests/integration/"
BUS: Final = "tests/contract/bus/"
TENANTS: Final = "tests/e2e/test_tenant_faults.py::"
KUBERNETES: Final = "tests/contract/kubernetes/"


class CataloguedFault(NamedTuple):
    """One fault that a system for admission meets."""

    number: str
    what: str
    rows: tuple[str, ...] = ()
    """Rows of `make faults`."""

    real: tuple[str, ...] = ()
    """Tests on real parts: nats-server, an API server over HTTP, processes, SSH, the evaluator."""

    simulated: tuple[str, ...] = ()
    """Tests in memory, where nothing else is practical."""


CATALOGUE: Final = (
    CataloguedFault("F01", "A service is killed at any moment", ("quota is killed", "every service is killed at once", "10 times a process is killed or paused"), ("tests/e2e/test_kills.py::test_load_finishes_while_every_service_and_the_broker_are_killed",)),
    CataloguedFault("F02", "A crash between deciding, publishing and acknowledgement", ("quota is killed", "quota is killed on three servers"), (INTEGRATION + "test_kills_cluster.py::test_killing_watcher_patcher_or_api_server_neither_loses_nor_repeats_admissions",)),
    CataloguedFault("F03", "A message is stored and its acknowledgement is lost", ("answers of NATS are lost",), (INTEGRATION + "test_bus_outages.py::test_killing_the_server_under_load_loses_no_acknowledged_message",)),
    CataloguedFault("F04", "A retry after the time in which duplicates are found", ("the network to NATS is cut",), (INTEGRATION + "test_long_outages.py::test_fenced_message_sent_again_after_the_window_of_duplicates_is_stored_once",)),
    CataloguedFault("F05", "Two leaders at once, after a pause", ("quota is paused for up to a minute", "quota is paused on three servers"), (INTEGRATION + "test_bus_outages.py::test_fenced_messages_of_a_stale_leader_are_never_stored", BUS + "test_order.py::test_every_reader_drops_what_a_replaced_leader_decided", BUS + "test_order.py::test_decision_is_refused_if_the_one_before_it_was")),
    CataloguedFault("F06", "The leader of a stream is killed", ("the server that leads the log of decisions is killed", "the server that leads the leases is killed")),
    CataloguedFault("F07", "NATS is down, then up", ("NATS is killed", "all three servers are killed"), (INTEGRATION + "test_bus_outages.py::test_watch_resumes_after_an_outage_with_missed_messages", INTEGRATION + "test_long_outages.py::test_outage_longer_than_every_try_loses_nothing_that_was_acknowledged")),
    CataloguedFault("F08", "A power cut takes what was not synced", ("NATS comes back with an older disk",), (INTEGRATION + "test_lost_tail.py::test_log_that_lost_its_tail_gets_it_back_at_the_same_sequences", BUS + "test_order.py::test_writer_learns_that_the_log_lacks_what_it_acknowledged")),
    CataloguedFault("F09", "A damaged store", ("one of three servers comes back with an empty disk",), (INTEGRATION + "test_damaged_store.py::test_workload_that_a_damaged_view_lost_is_read_from_the_log", INTEGRATION + "test_damaged_store.py::test_view_of_a_damaged_log_is_whole_and_the_log_takes_on", INTEGRATION + "test_backup.py::test_services_continue_from_a_backup_in_an_empty_server")),
    CataloguedFault("F10", "Streams are deleted", ("NATS comes back with an empty disk",), (INTEGRATION + "test_empty_disk.py::test_decisions_after_an_empty_disk_are_carried_out",)),
    CataloguedFault("F11", "A log is full", ("the log of decisions is full", "the log of workloads is full"), (BUS + "test_publishing.py::test_full_log_refuses_and_accepts_messages_again_later",)),
    CataloguedFault("F12", "The disk is full", ("the disk of NATS is full",)),
    CataloguedFault("F13", "A consumer falls silent", ("NATS is paused", "answers of NATS are lost"), (INTEGRATION + "test_bus_outages.py::test_silent_server_is_noticed",)),
    CataloguedFault("F14", "A handler takes longer than its time", (), (BUS + "test_work.py::test_long_handler_keeps_its_entry",)),
    CataloguedFault("F15", "A handler fails for a while", (), (BUS + "test_work.py::test_other_error_loses_no_entry_and_affects_no_other",)),
    CataloguedFault("F16", "A message that nobody can read", (), (BUS + "test_work.py::test_undecodable_body_becomes_a_dead_letter", INTEGRATION + "test_dead_letters.py::test_letter_is_listed_shown_retried_and_closed")),
    CataloguedFault("F17", "Events out of order and twice", (), (BUS + "test_reading.py::test_watch_under_load_gets_every_last_state_and_never_goes_back", BUS + "test_work.py::test_delayed_entry_is_superseded_by_a_newer_one")),
    CataloguedFault("F18", "Hostile names", (), (BUS + "test_publishing.py::test_hostile_names_are_encoded_and_decoded",)),
    CataloguedFault("F19", "One tenant floods the system", (), (TENANTS + "test_job_is_decided_among_the_first_of_another_tenants_flood",), ("tests/simulation/tenants/test_tenants.py::test_adversary_runs_nothing_uncounted_and_delays_no_other_tenant",)),
    CataloguedFault("F20", "Absurd quantities", (), (TENANTS + "test_absurd_amounts_are_refused_or_wait_and_the_next_leader_reads_them",), ("tests/unit/quota/test_bounds.py::test_next_leader_reads_whatever_quota_publishes",)),
    CataloguedFault("F21", "Attempts to get round the queue", (), (INTEGRATION + "test_forged_messages.py::test_decision_that_the_cluster_contradicts_starts_nothing",), ("tests/simulation/tenants/test_bypassed_queue.py::test_manually_started_job_counts_against_quota",)),
    CataloguedFault("F22", "Finished pods that need quota again", (), (TENANTS + "test_pods_that_were_given_back_are_not_taken_again",), ("tests/unit/quota/engine/test_checks_and_stopping.py::test_reclaimable_pods_free_their_quota",)),
    CataloguedFault("F23", "Quotas are lowered, cohorts deleted or cyclic", (), (TENANTS + "test_queue_over_its_lowered_quota_admits_nobody_and_stops_nobody", TENANTS + "test_deleted_cohort_lends_nothing_more_and_its_borrower_goes_on", TENANTS + "test_queue_in_a_cycle_of_cohorts_admits_again_once_the_cycle_is_gone"), ("tests/unit/quota/engine/test_preemption_ties.py::test_quota_is_not_lent_in_cycle_in_which_owner_uses_it",)),
    CataloguedFault("F24", "A queue is deleted while it is used", (), (TENANTS + "test_jobs_of_deleted_queues_run_on_and_give_their_quota_back_once",), ("tests/simulation/tenants/test_bypassed_queue.py::test_manually_started_job_counts_in_its_former_queue", "tests/unit/quota/test_service.py::test_deleted_queues_and_cohorts_leave_no_metrics")),
    CataloguedFault("F25", "A victim of a preemption ends by itself", (), (INTEGRATION + "test_explain_preemption.py::test_preemptor_is_shown_the_workloads_it_waits_for",), ("tests/unit/quota/engine/test_preemption.py::test_claim_keeps_quota_of_draining_victims_for_preemptor",)),
    CataloguedFault("F26", "A spoke is cut off, and comes back", (), (INTEGRATION + "test_leaf_node.py::test_spoke_disconnected_beyond_the_timeout_loses_and_repeats_no_job", INTEGRATION + "test_leaf_node.py::test_with_leases_job_of_a_disconnected_spoke_stops_there_before_it_runs_elsewhere")),
    CataloguedFault("F27", "Machines fail", (), ("tests/contract/providers/test_providers.py::test_repeated_order_after_lost_response_gives_one_machine", "tests/contract/providers/test_hosts.py::test_silent_host_is_unreachable"), ("tests/unit/provisioner/test_sweeper.py::test_sweep_finds_orphans_and_vanished_machines",)),
    CataloguedFault("F28", "The API server fails", ("the API server is killed", "the API server is paused"), (KUBERNETES + "test_faults.py::test_each_change_is_delivered_once_when_a_watch_misbehaves", KUBERNETES + "test_restart.py::test_reflector_sees_everything_over_kills_of_the_server")),
    CataloguedFault("F29", "The webhook's certificate, rules and requests", ("classifier is killed",), ("tests/unit/classifier/webhook/test_app.py::test_certificate_is_renewed_under_load_without_failed_request",)),
    CataloguedFault("F30", "Clocks jump, or differ", ("the clock of quota is off by up to ten minutes, then right again", "the clock of quota is off by up to ten minutes from now on", "the clock of quota is off by up to ten minutes, and it is killed", "the clock of patcher is off by up to ten minutes from now on", "the clock of classifier is off by up to ten minutes from now on"), ("tests/faults/test_clocks.py::test_time_of_day_jumps_and_monotonic_time_does_not",), ("tests/simulation/spokes/test_spokes_clocks.py::test_jobs_run_once_and_report_to_the_hub_with_skewed_clocks", "tests/unit/world/test_pauses_and_holds.py::test_clock_that_jumps_is_wrong_for_its_process_only")),
    CataloguedFault("F31", "Two releases at once", (), (BUS + "test_schema.py::test_work_of_a_newer_release_waits_for_a_newer_replica", BUS + "test_schema.py::test_logs_of_the_release_before_schema_versions_are_read")),
    CataloguedFault("F32", "Credentials are wrong, expired or another's", (), (INTEGRATION + "test_permissions.py::test_user_cannot_publish_to_subjects_of_others", INTEGRATION + "test_bus_outages.py::test_wrong_password_is_logged_and_retried")),
    CataloguedFault("F33", "Views or durables are lost", ("NATS comes back with an empty disk",), (INTEGRATION + "test_bus_views.py::test_work_continues_after_its_view_was_rebuilt",)),
    CataloguedFault("F34", "Memory, file descriptors or time run out", ("quota gets too little memory", "quota gets no more descriptors", "quota is paused for some seconds"), (INTEGRATION + "test_backlog.py::test_backlog_counts_waiting_and_delayed_entries_until_they_are_handled",), ("tests/unit/classifier/evaluation/test_pool.py::test_memory_beyond_the_limit_is_cut_off_and_the_lane_goes_on",)),
)  # fmt: skip


def faults_page() -> str:
    """The page, in Markdown."""
    rows = [f"| {one.number} | {one.what} | {_shown(one)} |" for one in CATALOGUE]
    return _HEAD + "\n".join(rows) + "\n"


def _shown(one: CataloguedFault) -> str:
    parts = [f"`make faults`: {'; '.join(one.rows)}"] if one.rows else []
    parts += [f"`{test}`" for test in one.real]
    parts += [f"in memory only: `{test}`" for test in one.simulated]
    return "<br>".join(parts)


_HEAD: Final = """<!-- Generated by `make contracts` from services/reference/faults.py. -->
# Faults, and the tests that show them

`make faults` breaks a running system on this machine: one nats-server, then three; a simulated API server; every service as a process of its own. It kills and
pauses processes, kills and pauses servers and the leaders of streams, takes a server's disk away or sets it back, fills disk and logs, and cuts the network so that
nothing arrives, or only answers are lost. In a system of their own the clocks of quota, patcher and classifier jump by 30 s to ten minutes, ahead or behind, and back or not,
while the services run or start (libfaketime, from Debian's package `faketime`, or the file that `FAKETIME_LIB` names). Jobs and PipelineRuns are created all the while. After each fault the journal of the API server is judged, whatever the streams say:

- every job starts once, after its Workload says that it may;
- at no moment does more run than the quota of its queue;
- every job ends, and its quota is given back;
- a new job starts within a minute of the fault's end; over a whole run, 99 of 100 within 20 s.

`make faults` plays each row as often as `tests/faults/table.py` says (more than 100 faults), one of them twenty times: ten times in a row a random process is killed or paused.
CI plays that row four times. `make faults FAULTS=40` plays a sample, `make faults ONLY='quota is'` those whose
name matches; `SEED=` draws other moments. The last line is `faults: N of N survived`, of those that were made. What this machine cannot do (a disk that is full needs a mount, a
clock libfaketime) is told in the line before, with the reason; with `FAULTS` another fault takes its place. A run fails if it made fewer than demanded: `FAULTS`, or 100 of the whole table.

The clock of nats-server cannot be moved: it is linked statically, and no library reaches it. After the disk was full, `make faults` starts nats-server again: a stream whose
write failed refuses every further message until then, though there is room.

The catalogue, with the rows and tests on real parts; where nothing real is practical, the test in memory:

| fault | what happens | shown by |
|---|---|---|
"""

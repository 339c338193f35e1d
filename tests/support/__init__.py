"""Test harness shared by several test folders.

State        sample_state (on disk), busy_state (in memory), large_state, state_changes (valid small rows), committing_leader
Manager      scenarios (stories in memory), random_history against reference_model, manager_process (a real one)
Tasks        executor_fixture (an open executor), task_snapshot (a test's functions as a bundle), file_signals, task_facts
Interfaces   api_server (REST in this process), served_process (`bfm serve`), flaky_transport, bfm (results of the command line)
Pages        page_client, page_checks, browser_server, web_user, find_browser
References   cron_reference (croniter), flights_in_pandas (the demo's results), leader_contract (leadership of a shared state)
Benchmarks   bench_overhead, bench_isolation, bench_task_processes
Docs         named_tests (that pages name, and whether they exist)
"""

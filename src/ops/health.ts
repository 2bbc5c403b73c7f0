import {
  isProblemCode,
  isSameProblem,
  type Problem,
  type ProblemCode,
  problemKey,
} from '../runtime/problems/problem.ts';
import type { ServiceState } from '../runtime/processes/service-state.ts';
import { isText, optional, shapeOf } from '../runtime/store/shape.ts';
import { membersOf } from '../runtime/files/checksummed-json.ts';
import { acceptFormerKeys, acceptFormerNames, addFormerNames } from '../runtime/former-names.ts';
import type { Logger } from '../runtime/logger.ts';

/**
 * Health: the problems of the service and their remedies.
 *
 * In: the supervisor's view of its processes and the reports of each stage, within a second of a change.
 * Out: problems for the operator's `/readyz`, `tributary status` and the supervisor's log; ready without one. Also
 * `/healthz`, `/metrics` (of all processes), and `/readyz` without reasons on the public ports.
 * Invariant: a problem has a next step and the time at which it began. Crash: nothing is stored here.
 */

/** Silence after which a process or a supervisor counts as stuck, ms. Both report every few seconds. */
const silentAfterMs = 10_000;

const isProblem = shapeOf<Problem>({
  code: isProblemCode,
  subject: optional(isText),
  message: isText,
  action: isText,
  since: optional(isText),
});

/** Returns a reported problem, also of a service of 0.3; undefined for any other value. */
function toProblem(value: unknown): Problem | undefined {
  const problem = acceptFormerNames('problem', membersOf(value));
  return isProblem(problem) ? problem : undefined;
}

const downWords = { starting: 'is restarting', waiting: 'is down', stopped: 'is stopped' } as const;

/** Problems that keep all processes of a service from running. */
const closing: readonly ProblemCode[] = ['data_folder_replaced', 'data_folder_shared', 'broker_store_replaced'];

function reportedAs(name: 'problems' | 'warnings', facts: ServiceState['facts']): Problem[] {
  return Object.values(facts).flatMap((reported) => {
    const list = acceptFormerNames('status', reported)[name];
    return Array.isArray(list) ? list.map(toProblem).filter((problem) => problem !== undefined) : [];
  });
}

/** Adds the time at which each problem began, as far as the supervisor knows it. */
export function withSince(problems: readonly Problem[], since: ServiceState['since'] = {}): Problem[] {
  const sinceByKey = acceptFormerKeys(since);
  return problems.map((problem) => {
    const startedAt = problem.since ?? sinceByKey[problemKey(problem)];
    return startedAt === undefined ? problem : { ...problem, since: startedAt };
  });
}

export function findWarnings({ facts, since }: Pick<ServiceState, 'facts' | 'since'>): Problem[] {
  return withSince(reportedAs('warnings', facts), since);
}

/** Problems of the supervisor that affect every port. */
const ofAllPorts: readonly ProblemCode[] = [...closing, 'access_missing'];

/** Problems of a part of a port, for which a balancer must not remove the port. */
const ofPartOfPort: readonly ProblemCode[] = ['record_missing', 'session_key_unreadable'];

/**
 * Collects the problems that keep one process from its work: its own, those that close the service, and, for import,
 * those of the broker.
 */
export function findOwnProblems(state: Parameters<typeof findProblems>[0], name: string, nowMs: number): Problem[] {
  const isImport = name.startsWith('ingest');
  const names = [name, 'supervisor', ...(isImport ? ['nats-server'] : [])];
  const ofSupervisor = reportedAs('problems', { supervisor: state.facts['supervisor'] ?? {} });
  const foreign = isImport ? [] : ofSupervisor.filter(({ code }) => !ofAllPorts.includes(code));
  const own = {
    ...state,
    processes: state.processes.filter((child) => names.includes(child.name)),
    facts: Object.fromEntries(Object.entries(state.facts).filter(([reporter]) => names.includes(reporter))),
  };
  return findProblems(own, nowMs).filter(
    (problem) => !ofPartOfPort.includes(problem.code) && !foreign.some((other) => isSameProblem(other, problem)),
  );
}

/**
 * Collects the problems of a service: processes that are down or silent, and those that the stages report. Problems that
 * close the service come first, since they cause the others.
 */
export function findProblems(
  state: Pick<ServiceState, 'processes' | 'facts' | 'silentMs' | 'writtenAt' | 'since'>,
  nowMs: number,
): Problem[] {
  const reported = reportedAs('problems', state.facts);
  const problems = reported.filter(({ code }) => closing.includes(code));
  const isClosed = problems.length > 0;
  if (nowMs - Date.parse(state.writtenAt) > silentAfterMs) {
    problems.push({
      code: 'supervisor_unresponsive',
      message: `the supervisor has not written its state since ${state.writtenAt}`,
      action: 'Check whether its process is stopped or its disk is full.',
    });
  }
  for (const child of state.processes) {
    const silentMs = state.silentMs[child.name] ?? 0;
    if (child.state === 'running') {
      if (child.unsteady === true) {
        problems.push({
          code: 'process_crash_looping',
          subject: child.name,
          message: `${child.name} is crash looping: restarted ${child.restarts} times${child.lastError === undefined ? '' : ` (${child.lastError})`}`,
          action: `Check the log lines with "process":"${child.name}", and the lines before them. The problem ends when the process has run for a minute.`,
        });
      }
      if (silentMs > silentAfterMs) {
        problems.push({
          code: 'process_unresponsive',
          subject: child.name,
          message: `${child.name} (pid ${child.pid}) is unresponsive: no heartbeat for ${Math.round(silentMs / 1000)} s`,
          action: 'Wait: a process without a heartbeat for 30 s is restarted, and no acknowledged event is lost.',
        });
      }
      continue;
    }
    problems.push({
      code: 'process_down',
      subject: child.name,
      message: `${child.name} ${downWords[child.state]}${child.lastError === undefined ? '' : ` (${child.lastError})`}`,
      action: isClosed
        ? 'Wait: it restarts when the first problem of this list is resolved.'
        : `Wait: it restarts automatically. If it stays down, check the log lines with "process":"${child.name}".`,
    });
  }
  for (const problem of reported) {
    // Several processes may report the same problem.
    if (!problems.some((known) => isSameProblem(known, problem))) problems.push(problem);
  }
  return withSince(problems, state.since);
}

/** ISO 8601 times by key (problem.ts). */
type SinceByKey = Readonly<Record<string, string>>;

/**
 * Creates a log of the begin and the end of each problem. Code and subject identify a problem: figures in its text may
 * change.
 */
export function createProblemLog(logger: Logger, nowMs: () => number) {
  let logged: ReadonlyMap<string, Problem> = new Map();
  let since: SinceByKey = {};
  return {
    /** Sets the current problems and warnings, and returns when they began. */
    update(problems: readonly Problem[], warnings: readonly Problem[] = []): SinceByKey {
      const now = new Map(problems.map((problem) => [problemKey(problem), problem]));
      const at = new Date(nowMs()).toISOString();
      const before = since;
      since = Object.fromEntries([...problems, ...warnings].map(problemKey).map((key) => [key, before[key] ?? at]));
      for (const [key, problem] of now)
        if (!logged.has(key)) logger.error(addFormerNames('problem', problem), 'problem');
      for (const [key, { code, subject, message }] of logged) {
        const resolved = { code, subject, message, since: before[key] };
        if (!now.has(key)) logger.info(addFormerNames('problem', resolved), 'problem resolved');
      }
      logged = now;
      return since;
    },
  };
}

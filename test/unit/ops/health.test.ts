import { describe, expect, it } from 'vitest';
import { pino } from 'pino';
import { findWarnings, findOwnProblems, findProblems, createProblemLog } from '../../../src/ops/health.ts';
import type { Problem } from '../../../src/runtime/problems/problem.ts';

const now = Date.parse('2024-05-01T10:00:00Z');
const running = { name: 'compact', state: 'running', pid: 1, restarts: 0, lastError: undefined } as const;
const healthy = {
  writtenAt: '2024-05-01T09:59:59Z',
  processes: [running],
  facts: { compact: { lagMessages: 0 } },
  silentMs: { compact: 900 },
};

const silent = (seconds: number): Problem => ({
  code: 'process_unresponsive',
  subject: 'compact',
  message: `compact is silent for ${seconds} s`,
  action: 'End it.',
});

const problemOf = (code: Problem['code']): Problem => ({ code, message: code, action: '.' });
const ownProblems = (facts: object, name: string, down = 'none'): string[] => {
  const processes = ['nats-server', 'ingest-1', 'ingest-2', 'compact', 'export'].map((process) => ({
    ...running,
    name: process,
    state: process === down ? ('waiting' as const) : ('running' as const),
  }));
  const state = { ...healthy, processes, facts: facts as typeof healthy.facts };
  return findOwnProblems(state, name, now).map(({ code }) => code);
};

describe('health', () => {
  it('Health has no problem while every process runs and reports', () => {
    expect(findProblems(healthy, now)).toEqual([]);
  });

  it('Health reports a process that is down, its last error, and which logs to check', () => {
    const state = {
      ...healthy,
      processes: [{ ...running, state: 'waiting', lastError: 'ended with SIGKILL' } as const],
    };
    expect(findProblems(state, now)).toEqual([
      {
        code: 'process_down',
        subject: 'compact',
        message: 'compact is down (ended with SIGKILL)',
        action: expect.stringContaining('"process":"compact"'),
      },
    ]);
  });

  it('Only its own problems make a port not ready, not those of other processes', () => {
    for (const name of ['ingest-1', 'export']) {
      expect(ownProblems({}, name, 'compact')).toEqual([]);
      expect(ownProblems({ compact: { problems: [problemOf('lake_unwritable')] } }, name)).toEqual([]);
      expect(ownProblems({ 'ingest-2': { problems: [problemOf('broker_unreachable')] } }, name)).toEqual([]);
      for (const code of ['data_folder_replaced', 'access_missing'] as const)
        expect(ownProblems({ supervisor: { problems: [problemOf(code)] } }, name)).toEqual([code]);
      expect(ownProblems({ [name]: { problems: [problemOf('access_unreadable')] } }, name)).toEqual([
        'access_unreadable',
      ]);
      expect(ownProblems({ [name]: { problems: [problemOf('record_missing')] } }, name)).toEqual([]);
    }
    expect(ownProblems({}, 'ingest-1', 'nats-server')).toEqual(['process_down']);
    expect(ownProblems({}, 'export', 'nats-server')).toEqual([]);
    const taken = { supervisor: { problems: [problemOf('stream_taken')] } };
    expect([ownProblems(taken, 'ingest-1'), ownProblems(taken, 'export')]).toEqual([['stream_taken'], []]);
  });

  it('Health reports a process in a crash loop, also while it runs', () => {
    const state = {
      ...healthy,
      processes: [{ ...running, restarts: 4, unsteady: true, lastError: 'ended with exit code 1' } as const],
    };
    expect(findProblems(state, now)).toEqual([
      {
        code: 'process_crash_looping',
        subject: 'compact',
        message: 'compact is crash looping: restarted 4 times (ended with exit code 1)',
        action: expect.stringContaining('"process":"compact"'),
      },
    ]);
  });

  it('Health returns the problems that a stage reports, and ignores other values', () => {
    const reported: Problem = { code: 'stream_full', message: 'the stream is full', action: 'Start the compactor.' };
    expect(
      findProblems(
        {
          ...healthy,
          facts: { ingest: { problems: [reported, 'text', null, { message: 1 }, { ...reported, code: 'made_up' }] } },
        },
        now,
      ),
    ).toEqual([reported]);
  });

  it('A problem that closes the service comes before its consequences', () => {
    const lost: Problem = { code: 'data_folder_replaced', message: 'the folder was taken', action: 'Put it back.' };
    const state = {
      ...healthy,
      processes: [{ ...running, state: 'waiting' } as const],
      facts: { compact: { problems: [silent(3)] }, supervisor: { problems: [lost] } },
    };
    const found = findProblems(state, now);
    expect(found.map(({ code }) => code)).toEqual(['data_folder_replaced', 'process_down', 'process_unresponsive']);
    expect(found[1]?.action).toBe('Wait: it restarts when the first problem of this list is resolved.');
  });

  it('Health lists warnings, which are not problems', () => {
    const noticed: Problem = {
      code: 'events_failed',
      message: '3 events are kept',
      action: 'Run tributary failed list.',
    };
    const state = {
      ...healthy,
      facts: { compact: { warnings: [noticed, 1] }, ingest: { warnings: 'none' }, export: {} },
    };
    expect(findWarnings(state)).toEqual([noticed]);
    expect(findProblems(state, now)).toEqual([]);
  });

  it('Health reports a process that runs without a heartbeat', () => {
    const [problem] = findProblems({ ...healthy, silentMs: { compact: 12_000 } }, now);
    expect(problem?.message).toBe('compact (pid 1) is unresponsive: no heartbeat for 12 s');
  });

  it('Health reports a supervisor that does not write its state', () => {
    expect(findProblems({ ...healthy, writtenAt: '2024-05-01T09:59:00Z' }, now)).toHaveLength(1);
  });

  it('A problem that several processes report is listed once', () => {
    const seen = {
      problems: [{ code: 'broker_unreachable', message: 'the broker does not accept events', action: 'Look at it.' }],
    };
    expect(
      findProblems({ ...healthy, facts: { 'ingest-1': seen, 'ingest-2': seen, compact: seen } }, now),
    ).toHaveLength(1);
  });
});

/** Creates a log with its lines, and a clock that a test advances, s. */
function createTestLog() {
  const lines: Record<string, unknown>[] = [];
  let nowMs = now;
  const log = createProblemLog(
    pino({ level: 'info' }, { write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>) }),
    () => nowMs,
  );
  return { log, lines, pass: (seconds: number) => void (nowMs += seconds * 1000) };
}

describe('the log of problems', () => {
  it('A problem is logged with its action when it begins, and again when it is resolved, regardless of changed figures', () => {
    const { log, lines, pass } = createTestLog();
    const full: Problem = { code: 'stream_full', message: 'the stream is full', action: 'Raise its limit.' };
    for (const problems of [[], [silent(10)], [silent(11)], [silent(12), full], [full], []]) {
      log.update(problems);
      pass(1);
    }
    expect(lines.map(({ msg, message, action, since }) => ({ msg, message, action, since }))).toEqual([
      { msg: 'problem', message: 'compact is silent for 10 s', action: 'End it.', since: undefined },
      { msg: 'problem', message: 'the stream is full', action: 'Raise its limit.', since: undefined },
      {
        msg: 'problem resolved',
        message: 'compact is silent for 12 s',
        action: undefined,
        since: '2024-05-01T10:00:01.000Z',
      },
      { msg: 'problem resolved', message: 'the stream is full', action: undefined, since: '2024-05-01T10:00:03.000Z' },
    ]);
    expect(lines[0]).toMatchObject({
      code: 'process_unresponsive',
      formerCode: 'process_silent',
      what: 'compact is silent for 10 s',
      todo: 'End it.',
    });
    expect(lines[2]).toMatchObject({ formerCode: 'process_silent', what: 'compact is silent for 12 s' });
  });

  it('The begin of each problem and warning is kept until it is resolved, and set again if it returns', () => {
    const { log, pass } = createTestLog();
    const noticed: Problem = { code: 'events_failed', message: '3 events are kept', action: 'List them.' };
    const full: Problem = { code: 'stream_full', message: 'the stream is full', action: 'Raise its limit.' };
    expect(log.update([full], [noticed])).toEqual({
      stream_full: '2024-05-01T10:00:00.000Z',
      events_failed: '2024-05-01T10:00:00.000Z',
    });
    pass(2);
    const since = log.update([full, silent(10)], [{ ...noticed, message: '4 events are kept' }]);
    expect(since).toEqual({
      stream_full: '2024-05-01T10:00:00.000Z',
      events_failed: '2024-05-01T10:00:00.000Z',
      'process_unresponsive compact': '2024-05-01T10:00:02.000Z',
    });
    // readyz and status report this time, unless the stage reports its own.
    const earlier = '2024-05-01T09:00:00.000Z';
    const facts = {
      ingest: { problems: [full] },
      compact: { problems: [{ ...silent(10), since: earlier }], warnings: [noticed] },
    };
    expect(findProblems({ ...healthy, facts, since }, now)).toEqual([
      { ...full, since: '2024-05-01T10:00:00.000Z' },
      { ...silent(10), since: earlier },
    ]);
    expect(findWarnings({ facts, since })).toEqual([{ ...noticed, since: '2024-05-01T10:00:00.000Z' }]);
    log.update([]);
    pass(1);
    expect(log.update([full])).toEqual({ stream_full: '2024-05-01T10:00:03.000Z' });
  });
});

import { describe, expect, it } from 'vitest';
import { pino } from 'pino';
import { findNotices, findProblems } from '../../../src/health/health.ts';
import { createProblemLog } from '../../../src/health/problem-log.ts';

const now = Date.parse('2024-05-01T10:00:00Z');
const running = { name: 'compact', state: 'running', pid: 1, restarts: 0, lastError: undefined } as const;
const healthy = { writtenAt: '2024-05-01T09:59:59Z', processes: [running], facts: { compact: { lagMessages: 0 } }, silentMs: { compact: 900 } };

const silent = (seconds: number) => ({ what: `compact is silent for ${seconds} s`, todo: 'End it.' });

describe('health', () => {
  it('finds nothing wrong while every process runs and reports', () => {
    expect(findProblems(healthy, now)).toEqual([]);
  });

  it('names a process that is down, why it ended, and where to look', () => {
    const state = { ...healthy, processes: [{ ...running, state: 'waiting', lastError: 'ended with SIGKILL' } as const] };
    expect(findProblems(state, now)).toEqual([{ what: 'compact is waiting (ended with SIGKILL)', todo: expect.stringContaining('"process":"compact"') }]);
  });

  it('names a process that is started again and again, also while it runs', () => {
    const state = { ...healthy, processes: [{ ...running, restarts: 4, unsteady: true, lastError: 'ended with exit code 1' } as const] };
    expect(findProblems(state, now)).toEqual([{ what: 'compact was started again and again: 4 times in all (ended with exit code 1)', todo: expect.stringContaining('"process":"compact"') }]);
  });

  it('passes on what a stage reports, and nothing that is not a problem', () => {
    const reported = { what: 'the stream is full', todo: 'Start the compactor.' };
    expect(findProblems({ ...healthy, facts: { ingest: { problems: [reported, 'text', null, { what: 1 }] } } }, now)).toEqual([reported]);
  });

  it('tells of what is to be looked at, which is no problem', () => {
    const noticed = { what: '3 events are kept', todo: 'Run tributary failed list.' };
    const state = { ...healthy, facts: { compact: { notices: [noticed, 1] }, ingest: { notices: 'none' }, export: {} } };
    expect(findNotices(state)).toEqual([noticed]);
    expect(findProblems(state, now)).toEqual([]);
  });

  it('notices a process that runs and says nothing', () => {
    const [problem] = findProblems({ ...healthy, silentMs: { compact: 12_000 } }, now);
    expect(problem?.what).toBe('compact (pid 1) runs and has reported nothing for 12 s');
  });

  it('notices a supervisor that fell silent', () => {
    expect(findProblems({ ...healthy, writtenAt: '2024-05-01T09:59:00Z' }, now)).toHaveLength(1);
  });

  it('tells once what several processes see', () => {
    const seen = { problems: [{ what: 'the broker does not take events', todo: 'Look at it.' }] };
    expect(findProblems({ ...healthy, facts: { 'ingest-1': seen, 'ingest-2': seen, compact: seen } }, now)).toHaveLength(1);
  });
});

describe('the log of problems', () => {
  it('has a line when one begins, with what to do, and one when it is over, however its figures change in between', () => {
    const lines: Record<string, unknown>[] = [];
    const log = createProblemLog(pino({ level: 'info' }, { write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>) }));
    log.update([]);
    log.update([silent(10)]);
    log.update([silent(11)]);
    log.update([silent(12), { what: 'the stream is full', todo: 'Raise its limit.' }]);
    log.update([{ what: 'the stream is full', todo: 'Raise its limit.' }]);
    log.update([]);
    expect(lines.map(({ msg, what, todo }) => ({ msg, what, todo }))).toEqual([
      { msg: 'problem', what: 'compact is silent for 10 s', todo: 'End it.' },
      { msg: 'problem', what: 'the stream is full', todo: 'Raise its limit.' },
      { msg: 'problem is over', what: 'compact is silent for 12 s', todo: undefined },
      { msg: 'problem is over', what: 'the stream is full', todo: undefined },
    ]);
  });
});

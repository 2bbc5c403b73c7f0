import { describe, expect, it } from 'vitest';
import {
  countsAgree,
  formatCountsByName,
  formatSummary,
  type DemoCounts,
  createStageTiming,
} from '../../../src/demo/demo-report.ts';

const good: DemoCounts = {
  sent: {
    events: 3,
    requests: 1,
    byName: new Map([
      ['a', 2],
      ['b', 1],
    ]),
    firstTimestamp: 1,
    lastTimestamp: 2,
    timedByReceipt: false,
  },
  stored: 3,
  lakeRows: [
    { name: 'a', events: 2n, users: 1n },
    { name: 'b', events: 1n, users: 1n },
  ],
  report: {
    rows: 3,
    distinctIds: 3,
    byName: new Map([
      ['a', 2],
      ['b', 1],
    ]),
  },
  others: { loaded: 3, installs: 3, usersEvents: 3, sessions: 1, sessionEvents: 3 },
};

describe('the demo’s report', () => {
  it('The report of the demo agrees only when all counts agree', () => {
    expect(countsAgree(good)).toBe(true);
    expect(countsAgree({ ...good, stored: 2 })).toBe(false);
    expect(countsAgree({ ...good, others: { ...good.others, installs: 2 } })).toBe(false);
    expect(countsAgree({ ...good, others: { ...good.others, sessionEvents: 2 } })).toBe(false);
    expect(countsAgree({ ...good, lakeRows: good.lakeRows.slice(1) })).toBe(false);
    expect(countsAgree({ ...good, lakeRows: [...good.lakeRows, { name: 'c', events: 1n, users: 1n }] })).toBe(false);
    expect(countsAgree({ ...good, report: { ...good.report, rows: 4 } })).toBe(false);
    expect(countsAgree({ ...good, report: { ...good.report, distinctIds: 2 } })).toBe(false);
    expect(
      countsAgree({
        ...good,
        report: {
          ...good.report,
          byName: new Map([
            ['a', 1],
            ['b', 2],
          ]),
        },
      }),
    ).toBe(false);
  });

  it('The report of the demo shows the counts of each name side by side, and a summary of six lines', () => {
    expect(formatCountsByName(good).split('\n')).toEqual([
      'name  events  users  sent  in the file',
      '----  ------  -----  ----  -----------',
      'a          2      1     2            2',
      'b          1      1     1            1',
    ]);
    expect(formatSummary(good, createStageTiming()).split('\n')).toHaveLength(6);
  });
});

import type { ReportJob } from '../../src/reports/reports.ts';

/** Returns the record of a succeeded export request of user 1 in account 1, with changes. */
export function reportJob(change: Partial<ReportJob> = {}): ReportJob {
  return {
    id: 1,
    idUser: '1',
    idAccount: 1,
    createdMs: 0,
    state: 'success',
    attempts: 1,
    event: 'customEvents',
    nonce: '0'.repeat(32),
    request: {},
    finishedMs: 1,
    ...change,
  };
}

import { describe, expect, it, test } from 'vitest';
import { registerServiceGauges } from '../../../src/ops/service-gauges.ts';
import { findProblems, findWarnings } from '../../../src/ops/health.ts';
import type { Problem, ProblemCode } from '../../../src/runtime/problems/problem.ts';
import {
  acceptFormerNames,
  describeFormerNames,
  withFormerNames,
  withFormerStatus,
} from '../../../src/runtime/former-names.ts';
import { object, text } from '../../../src/runtime/http/openapi.ts';
import { createMetrics, renderMetrics } from '../../../src/runtime/metrics.ts';

const fields = [
  ['catalogue', 'isComplete', 'isWhole'],
  ['dropped', 'reason', 'why'],
  ['erasure', 'tablesToRepeat', 'repeatAfterLoads'],
  ['errors', 'errorsOmitted', 'leftOut'],
  ['event', 'sampledEvents', 'looked'],
  ['export', 'slotMayBeIncomplete', 'slotMayLackEvents'],
  ['field', 'nonNullEvents', 'filled'],
  ['fields', 'isComplete', 'isWhole'],
  ['fields', 'sampledEvents', 'looked'],
  ['notice', 'isResolved', 'isOver'],
  ['overLimit', 'action', 'todo'],
  ['parameter', 'distinctValues', 'values'],
  ['preview', 'isTruncated', 'isCut'],
  ['problem', 'action', 'todo'],
  ['problem', 'message', 'what'],
  ['refusal', 'errors', 'faults'],
  ['refusal', 'requestsNotRecorded', 'leftOut'],
  ['replay', 'skipped', 'notTried'],
  ['status', 'warnings', 'notices'],
  ['tail', 'dropped', 'leftOut'],
  ['webhook', 'lastError', 'lastProblem'],
  ['webhook', 'timestampLastAttempt', 'timestampLastTry'],
] as const;

const codes: [code: ProblemCode, former: string, subject?: string][] = [
  ['broker_ack_timeout', 'broker_unconfirmed'],
  ['broker_permission_denied', 'broker_refuses'],
  ['broker_store_write_failed', 'broker_frozen'],
  ['broker_unreachable', 'broker_silent'],
  ['broker_unresponsive', 'broker_hung'],
  ['data_folder_replaced', 'folder_lost'],
  ['data_folder_shared', 'second_service'],
  ['dedupe_keys_lost', 'keys_unknown'],
  ['process_closed', 'role_closed'],
  ['process_crash_looping', 'process_unsteady'],
  ['process_unresponsive', 'process_silent'],
  ['seal_failed', 'file_unsealed', 'kind=login/date=2026-01-01/1.parquet'],
  ['seal_failed', 'files_unsealed'],
  ['seal_failed', 'files_unsealed', 'payments'],
  ['secrets_key_missing', 'users_key_gone'],
  ['service_crashed', 'service_ended'],
  ['stream_claim_missing', 'claim_missing'],
  ['stream_repaired', 'stream_mended'],
  ['supervisor_unresponsive', 'supervisor_silent'],
  ['user_agent_parser_failed', 'agents_unparsed'],
];

const toJson = (value: object): unknown => JSON.parse(JSON.stringify(value));
const problemOf = (code: Problem['code'], subject?: string): Problem => ({
  code,
  ...(subject === undefined ? {} : { subject }),
  message: 'm',
  action: 'a',
});

describe('former names', () => {
  it.each(fields)('The JSON of a %s has %s also as %s, a table does not', (of, name, former) => {
    const answer = withFormerNames(of, { [name]: 7 });
    expect(toJson(answer)).toMatchObject({ [name]: 7, [former]: 7 });
    expect(Object.keys(answer)).toEqual([name]);
    expect(toJson(withFormerNames(of, { other: 7 }))).toEqual({ other: 7 });
    expect(acceptFormerNames(of, { [former]: 7 })).toEqual({ [name]: 7 });
    expect(acceptFormerNames(of, { [name]: 7, [former]: 8 })).toEqual({ [name]: 7 });
    const { required, properties } = describeFormerNames(of, object({ [name]: text }));
    expect(required).toEqual([name]);
    expect(properties).toMatchObject({ [name]: text, [former]: { type: 'string', deprecated: true } });
  });

  it.for(codes)('A problem %s has the former code %s (subject: %s)', ([code, formerCode, subject]) => {
    const status = withFormerStatus({ problems: [problemOf(code, subject)], warnings: [problemOf('events_failed')] });
    const warnings = [{ ...problemOf('events_failed'), what: 'm', todo: 'a' }];
    expect(toJson(status)).toEqual({
      problems: [{ ...problemOf(code, subject), formerCode, what: 'm', todo: 'a' }],
      warnings,
      notices: warnings,
    });
    expect(status.problems).toEqual([problemOf(code, subject)]);
  });

  it.for(codes)(
    'A problem %s is read from the state of a service of 0.3, as %s (subject: %s)',
    ([code, former, subject]) => {
      const reported = { code: former, ...(subject === undefined ? {} : { subject }), what: 'm', todo: 'a' };
      const facts = { one: { problems: [reported], notices: [reported] } };
      const state = { processes: [], facts, silentMs: {}, writtenAt: new Date(0).toISOString() };
      const found = [expect.objectContaining(problemOf(code, subject))];
      expect([findProblems(state, 0), findWarnings(state)]).toEqual([found, found]);
      const since = { [subject === undefined ? former : `${former} ${subject}`]: '2026-11-24T00:00:00Z' };
      const dated = [expect.objectContaining({ code, since: '2026-11-24T00:00:00Z' })];
      expect([findProblems({ ...state, since }, 0), findWarnings({ ...state, since })]).toEqual([dated, dated]);
    },
  );
});

test('A finding of the lake has its former kind', () => {
  const [finding, other] = ['unreferenced_file', 'missing_file'].map((problem) =>
    toJson(withFormerNames('finding', { problem })),
  );
  expect([finding, other]).toEqual([
    { problem: 'unreferenced_file', formerProblem: 'orphan_file' },
    { problem: 'missing_file' },
  ]);
});

test('Metrics have their former names, and codes their former ones with a label by which rules exclude them', async () => {
  const metrics = createMetrics();
  metrics.counter('export_responses_total', 'Responses.').inc(3);
  const [problems, warnings] = [[problemOf('broker_unreachable')], [problemOf('dedupe_keys_lost')]];
  registerServiceGauges(metrics, () => ({ problems, warnings, processes: [] }));
  const { body } = await renderMetrics([await metrics.snapshot()]);
  for (const line of [
    'export_responses_total 3',
    'export_answers_total 3',
    'service_problems 1',
    'service_problems_by_code{code="broker_unreachable"} 1',
    'service_problems_by_code{code="broker_silent",deprecated="true"} 1',
    'service_problems_by_code{code="broker_hung",deprecated="true"} 0',
    'service_warnings_by_code{code="dedupe_keys_lost"} 1',
    'service_notices_by_code{code="keys_unknown",deprecated="true"} 1',
  ])
    expect(body).toContain(`\ntributary_${line}\n`);
});

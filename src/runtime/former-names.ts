import type { ProblemCode } from './problems/problem.ts';
import { membersOf, renameMembers } from './files/checksummed-json.ts';
import type { Schema } from './http/openapi.ts';

// Names of 0.3, accepted and written next to the current ones until 0.5, which removes this file and its calls. Tables
// show current names only.

const formerCodes = new Map<string, readonly string[]>([
  ['broker_ack_timeout', ['broker_unconfirmed']],
  ['broker_permission_denied', ['broker_refuses']],
  ['broker_store_write_failed', ['broker_frozen']],
  ['broker_unreachable', ['broker_silent']],
  ['broker_unresponsive', ['broker_hung']],
  ['data_folder_replaced', ['folder_lost']],
  ['data_folder_shared', ['second_service']],
  ['dedupe_keys_lost', ['keys_unknown']],
  ['process_closed', ['role_closed']],
  ['process_crash_looping', ['process_unsteady']],
  ['process_unresponsive', ['process_silent']],
  // The second one counted the files that were not named.
  ['seal_failed', ['file_unsealed', 'files_unsealed']],
  ['secrets_key_missing', ['users_key_gone']],
  ['service_crashed', ['service_ended']],
  ['stream_claim_missing', ['claim_missing']],
  ['stream_repaired', ['stream_mended']],
  ['supervisor_unresponsive', ['supervisor_silent']],
  ['user_agent_parser_failed', ['agents_unparsed']],
] satisfies [ProblemCode, readonly string[]][]);
const currentCodes = new Map([...formerCodes].flatMap(([code, former]) => former.map((one) => [one, code] as const)));

const formerMetrics = new Map([
  ['tributary_export_responses_total', 'tributary_export_answers_total'],
  ['tributary_service_warnings_by_code', 'tributary_service_notices_by_code'],
]);

/** Former kinds of findings of `tributary lake check`. */
const formerFindings = new Map([['unreferenced_file', 'orphan_file']]);

/** Former names of fields with their current names, by the object that has them. */
const formerFields = {
  catalogue: { isWhole: 'isComplete' },
  dropped: { why: 'reason' },
  erasure: { repeatAfterLoads: 'tablesToRepeat' },
  errors: { leftOut: 'errorsOmitted' },
  event: { looked: 'sampledEvents' },
  export: { slotMayLackEvents: 'slotMayBeIncomplete' },
  field: { filled: 'nonNullEvents' },
  fields: { looked: 'sampledEvents', isWhole: 'isComplete' },
  finding: {},
  notice: { isOver: 'isResolved' },
  overLimit: { todo: 'action' },
  parameter: { values: 'distinctValues' },
  preview: { isCut: 'isTruncated' },
  problem: { what: 'message', todo: 'action' },
  refusal: { faults: 'errors', leftOut: 'requestsNotRecorded' },
  replay: { notTried: 'skipped' },
  status: { notices: 'warnings' },
  tail: { leftOut: 'dropped' },
  webhook: { timestampLastTry: 'timestampLastAttempt', lastProblem: 'lastError' },
} as const satisfies Readonly<Record<string, Readonly<Record<string, string>>>>;

type Answer = keyof typeof formerFields;

function findFormerCode(code: unknown, subject: unknown): string | undefined {
  const [first, others] = formerCodes.get(String(code)) ?? [];
  return others === undefined || String(subject).endsWith('.parquet') ? first : others;
}

export function addFormerNames<T extends object>(of: Answer, answer: T): T {
  const values = new Map<string, unknown>(Object.entries(answer));
  const added = Object.entries<string>(formerFields[of]).map(([former, name]) => [former, values.get(name)] as const);
  if (of === 'problem') added.push(['formerCode', findFormerCode(values.get('code'), values.get('subject'))]);
  if (of === 'finding') added.push(['formerProblem', formerFindings.get(String(values.get('problem')))]);
  return { ...answer, ...Object.fromEntries(added.filter(([, value]) => value !== undefined)) };
}

/** Returns an object whose JSON has the former names too. Apply it last: a copy of the object does not have them. */
export function withFormerNames<T extends object>(of: Answer, answer: T): T {
  return Object.defineProperty({ ...answer }, 'toJSON', { value: () => addFormerNames(of, answer) });
}

/** Returns `withFormerNames` of an object and of its problems. */
export function withFormerStatus<T extends object>(status: T): T {
  const lists = Object.entries(status).flatMap(([name, value]: [string, unknown]) => {
    const isList = (name === 'problems' || name === 'warnings') && Array.isArray(value);
    return isList ? [[name, value.map((problem: object) => withFormerNames('problem', problem))]] : [];
  });
  return withFormerNames('status', { ...status, ...Object.fromEntries(lists) });
}

/** Returns an object with current names only, also if a service of 0.3 wrote it. */
export function acceptFormerNames(of: Answer, value: object): Readonly<Record<string, unknown>> {
  const renamed = renameMembers(membersOf(value), formerFields[of]);
  const code = of === 'problem' ? currentCodes.get(String(renamed['code'])) : undefined;
  return code === undefined ? renamed : { ...renamed, code };
}

/** Returns values by `problemKey`, under the current codes, also if a service of 0.3 wrote them. */
export function acceptFormerKeys<T>(byKey: Readonly<Record<string, T>>): Readonly<Record<string, T>> {
  return Object.fromEntries(
    Object.entries(byKey).map(([key, value]) => [key.replace(/^\w+/, (code) => currentCodes.get(code) ?? code), value]),
  );
}

/** Adds the former names to the OpenAPI schema of an object, as deprecated members. */
export function describeFormerNames(of: Answer, schema: Schema): Schema {
  const members = new Map(Object.entries(membersOf(schema['properties'])));
  const deprecate = (former: string, name: string, described: unknown): void =>
    void members.set(former, {
      ...membersOf(described),
      deprecated: true,
      description: `Former name of ${name}, until 0.5.`,
    });
  for (const [former, name] of Object.entries<string>(formerFields[of])) deprecate(former, name, members.get(name));
  if (of === 'problem') deprecate('formerCode', 'the code', { type: 'string' });
  return { ...schema, properties: Object.fromEntries(members) };
}

/** A metric as processes send it. */
export interface SentMetric {
  readonly name: string;
  readonly help: string;
  readonly values: readonly { readonly labels: Readonly<Record<string, string | number>> }[];
}

function addFormerCodes(metric: SentMetric): SentMetric {
  const former = metric.values.flatMap((value) =>
    (formerCodes.get(String(value.labels['code'])) ?? []).map((code) => ({
      ...value,
      labels: { ...value.labels, code, deprecated: 'true' },
    })),
  );
  return former.length === 0 ? metric : { ...metric, values: [...metric.values, ...former] };
}

/** Adds the metrics under their former names, and the former codes of problems. */
export function addFormerMetrics(metrics: readonly SentMetric[]): SentMetric[] {
  return metrics.map(addFormerCodes).flatMap((metric) => {
    const name = formerMetrics.get(metric.name);
    return name === undefined
      ? metric
      : [metric, { ...metric, name, help: `Former name of ${metric.name}, until 0.5.` }];
  });
}

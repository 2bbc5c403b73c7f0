import { getMethod } from '../datasets/dataset.ts';
import { listViolations, type GivenFields } from '../datasets/schema-registry.ts';
import { findNearest } from '../runtime/nearest-name.ts';
import { findKeyFault, findNoEvent, readEvents, type ImportRequest } from './import-request.ts';
import { answerOf, type Fault, type FaultList, type Refusal } from './refusal.ts';
import { listMissingIdentity } from './required-ids.ts';

/** Faults that one answer names; a client that has more has seen enough to begin with. */
const maxFaults = 100;

/** Most letters between a name of a query and the parameter that it was meant to be. */
const maxQueryTypos = 2;

/**
 * Returns the refusal of a query with a name that was meant to be a known one: it differs by case or by at most two
 * letters. Such a request would do another thing than its client means, such as store what was only to be checked.
 */
export function findMisspelt(names: readonly string[], known: readonly string[]): Refusal | undefined {
  for (const name of names) {
    const nearest = known.includes(name) ? undefined : findNearest(name, known, maxQueryTypos);
    if (nearest !== undefined) return { reason: 'rules', detail: `there is no parameter ${name}: ${nearest} is one` };
  }
  return undefined;
}

/** Says whether a request asks for everything that is wrong with it: `Prefer: errors=all` (RFC 7240). */
export function wantsAllFaults({ headers }: ImportRequest['head']): boolean {
  const { prefer } = headers;
  return prefer !== undefined && /(?:^|,)\s*errors\s*=\s*"?all"?\s*(?:[;,]|$)/i.test(String(prefer));
}

function faultsOf(request: ImportRequest, value: unknown, at: string): Fault[] {
  const noEvent = findNoEvent(request, value);
  if (noEvent !== undefined) return [{ ...noEvent, pointer: at }];
  const { method, app } = request;
  const { kind } = getMethod(method);
  const fields = value as GivenFields;
  return [...listViolations(kind, fields), ...listMissingIdentity(kind, app.platform, fields)].map((violation) => ({
    ...violation,
    pointer: `${at}${violation.pointer}`,
  }));
}

/** What is wrong with a request that is not looked at any further. */
export function toFault({ fault, detail }: Refusal): Fault {
  return fault ?? { pointer: '', reason: detail };
}

/** Lists what is wrong with a request that was refused; the first of them need not be that of the refusal. */
export function listFaults(request: ImportRequest, refusal: Refusal): FaultList {
  const values = readEvents(request);
  const { batch } = getMethod(request.method);
  const ofBody =
    'reason' in values
      ? [toFault(values)]
      : values.flatMap((value, index) => faultsOf(request, value, batch ? `/${index}` : ''));
  // What is wrong may lie beside the events.
  const keyFault = findKeyFault(request.head);
  const found = [...ofBody, ...(keyFault === undefined ? [] : [{ pointer: '', reason: keyFault }])];
  const faults = found.length === 0 ? [toFault(refusal)] : found.slice(0, maxFaults);
  return { faults, leftOut: Math.max(0, found.length - maxFaults) };
}

/**
 * Lists the one thing that is wrong with a request that was refused before anything else was looked at, where its client
 * asks for the list.
 */
export function listAsAsked(head: ImportRequest['head'], refusal: Refusal): Refusal {
  const isListed = refusal.all === undefined && answerOf(refusal.reason).status === 400 && wantsAllFaults(head);
  return isListed ? { ...refusal, all: { faults: [toFault(refusal)], leftOut: 0 } } : refusal;
}

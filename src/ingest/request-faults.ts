import { getMethod } from '../datasets/dataset.ts';
import { listViolations, type GivenFields } from '../datasets/schema-registry.ts';
import { findNearest } from '../runtime/nearest-name.ts';
import { findKeyFault, findNoEvent, readEvents, type ImportRequest } from './import-request.ts';
import { answerOf, type Fault, type FaultList, type Refusal } from './refusal.ts';
import { listMissingIdentity } from './required-ids.ts';

const maxFaults = 100;

/** Limits the letters that differ between a misspelt parameter and the known one. */
const maxQueryTypos = 2;

/** Refuses a query with a misspelt parameter: without it, the request could store what was only to be checked. */
export function findMisspelt(names: readonly string[], known: readonly string[]): Refusal | undefined {
  for (const name of names) {
    const nearest = known.includes(name) ? undefined : findNearest(name, known, maxQueryTypos);
    if (nearest !== undefined)
      return { reason: 'rules', detail: `unknown parameter ${name}; did you mean ${nearest}?` };
  }
  return undefined;
}

/** Reports whether a request asks for all faults: `Prefer: errors=all` (RFC 7240). */
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

export function toFault({ fault, detail }: Refusal): Fault {
  return fault ?? { pointer: '', reason: detail };
}

/** Lists the faults of a refused request; the first need not be that of the refusal. */
export function listFaults(request: ImportRequest, refusal: Refusal): FaultList {
  const values = readEvents(request);
  const { batch } = getMethod(request.method);
  const ofBody =
    'reason' in values
      ? [toFault(values)]
      : values.flatMap((value, index) => faultsOf(request, value, batch ? `/${index}` : ''));
  const keyFault = findKeyFault(request.head);
  const found = [...ofBody, ...(keyFault === undefined ? [] : [{ pointer: '', reason: keyFault }])];
  const faults = found.length === 0 ? [toFault(refusal)] : found.slice(0, maxFaults);
  return { faults, omitted: Math.max(0, found.length - maxFaults) };
}

/** Adds the list of faults to a refusal that has none, with its one fault, if the client asks for it. */
export function listAsAsked(head: ImportRequest['head'], refusal: Refusal): Refusal {
  const isListed = refusal.all === undefined && answerOf(refusal.reason).status === 400 && wantsAllFaults(head);
  return isListed ? { ...refusal, all: { faults: [toFault(refusal)], omitted: 0 } } : refusal;
}

import { getMethod } from '../datasets/dataset.ts';
import { listViolations, type GivenFields } from '../datasets/schema-registry.ts';
import { findNoEvent, readEvents, type ImportRequest } from './import-request.ts';
import type { Fault, Refusal } from './refusal.ts';
import { findMissingIdentity } from './required-ids.ts';

/** Faults that one answer names; a client that has more has seen enough to begin with. */
const maxFaults = 100;

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
  const broken = listViolations(kind, fields);
  const missing = findMissingIdentity(kind, app.platform, fields);
  return [...broken, ...(missing === undefined ? [] : [missing])].map((violation) => ({
    ...violation,
    pointer: `${at}${violation.pointer}`,
  }));
}

/** Lists what is wrong with a request that was refused; the first of them need not be that of the refusal. */
export function listFaults(request: ImportRequest, { detail }: Refusal): readonly Fault[] {
  const values = readEvents(request);
  if ('reason' in values) return [{ pointer: '', reason: values.detail }];
  const { batch } = getMethod(request.method);
  const faults: Fault[] = [];
  for (const [index, value] of values.entries()) {
    if (faults.length >= maxFaults) break;
    faults.push(...faultsOf(request, value, batch ? `/${index}` : ''));
  }
  // What is wrong may lie beside the events, such as in a header.
  return faults.length === 0 ? [{ pointer: '', reason: detail }] : faults.slice(0, maxFaults);
}

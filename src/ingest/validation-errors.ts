import { getMethod } from '../datasets/dataset.ts';
import { listSchemaErrors } from '../datasets/schema-registry.ts';
import { findNearest } from '../runtime/nearest-name.ts';
import { describeNonEvent, findKeyError, isEvent, readEvents, type ImportRequest } from './import-request.ts';
import { answerOf, type ValidationError, type ValidationErrors, type Refusal } from './refusal.ts';
import { listMissingIdentity } from './required-ids.ts';

const maxValidationErrors = 100;

/** Limits the letters that differ between a misspelt parameter and the known one. */
const maxQueryTypos = 2;

/** Refuses a query with a misspelt parameter: without it, the request could store what was only to be checked. */
export function findMisspelledParameter(names: readonly string[], known: readonly string[]): Refusal | undefined {
  for (const name of names) {
    const nearest = known.includes(name) ? undefined : findNearest(name, known, maxQueryTypos);
    if (nearest !== undefined)
      return { reason: 'rules', detail: `unknown parameter ${name}; did you mean ${nearest}?` };
  }
  return undefined;
}

/** Reports whether a request asks for all faults: `Prefer: errors=all` (RFC 7240). */
export function prefersAllErrors({ headers }: ImportRequest['head']): boolean {
  const { prefer } = headers;
  return prefer !== undefined && /(?:^|,)\s*errors\s*=\s*"?all"?\s*(?:[;,]|$)/i.test(String(prefer));
}

function faultsOf(request: ImportRequest, value: unknown, at: string): ValidationError[] {
  if (!isEvent(value)) return [{ ...describeNonEvent(request, value), pointer: at }];
  const { method, app } = request;
  const { kind } = getMethod(method);
  return [...listSchemaErrors(kind, value), ...listMissingIdentity(kind, app.platform, value)].map((schemaError) => ({
    ...schemaError,
    pointer: `${at}${schemaError.pointer}`,
  }));
}

export function toValidationError({ validationError, detail }: Refusal): ValidationError {
  return validationError ?? { pointer: '', reason: detail };
}

/** Lists the faults of a refused request; the first need not be that of the refusal. */
export function listRequestErrors(request: ImportRequest, refusal: Refusal): ValidationErrors {
  const values = readEvents(request);
  const { batch } = getMethod(request.method);
  const ofBody =
    'reason' in values
      ? [toValidationError(values)]
      : values.flatMap((value, index) => faultsOf(request, value, batch ? `/${index}` : ''));
  const keyFault = findKeyError(request.head);
  const found = [...ofBody, ...(keyFault === undefined ? [] : [{ pointer: '', reason: keyFault }])];
  const validationErrors = found.length === 0 ? [toValidationError(refusal)] : found.slice(0, maxValidationErrors);
  return { listed: validationErrors, omitted: Math.max(0, found.length - maxValidationErrors) };
}

/** Adds the list of faults to a refusal that has none, with its one fault, if the client asks for it. */
export function listErrorsIfRequested(head: ImportRequest['head'], refusal: Refusal): Refusal {
  const isListed = refusal.all === undefined && answerOf(refusal.reason).status === 400 && prefersAllErrors(head);
  return isListed ? { ...refusal, all: { listed: [toValidationError(refusal)], omitted: 0 } } : refusal;
}

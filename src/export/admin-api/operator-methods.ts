import type { User } from '../../access/access.ts';
import { isAppError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import type { Arguments } from '../api/arguments.ts';
import { badRequest, isApiError, type ExportApiError } from '../api/envelope.ts';
import {
  parseCount,
  parseId,
  parseLimit,
  findUnknownArgumentError,
  single,
  type AddMethod,
} from '../api/methods-routes.ts';

const operatorsOnly: ExportApiError = { code: 403, detail: 'Operators only' };

/** Parses an id, or `none` as null; undefined for other texts. */
export function parseIdOrNone(text: string | undefined): number | null | undefined {
  return text === 'none' ? null : parseId(text);
}

/** Parses a text of 1 to `most` characters without control characters; undefined for others. */
export function parseLabel(text: string | undefined, most: number): string | undefined {
  return text !== undefined && text !== '' && text.length <= most && !/\p{Cc}/u.test(text) ? text : undefined;
}

function toRefusal(error: unknown): ExportApiError {
  if (isAppError(error, 'not_found')) return { code: 404, detail: error.message };
  if (isAppError(error, 'usage') || isAppError(error, 'conflict')) return badRequest(error.message);
  throw error;
}

export type OperatorMethods = ReturnType<typeof createOperatorMethods>;

function findFault({ isOperator }: User, given: Arguments, known: readonly string[]): ExportApiError | undefined {
  if (!isOperator) return operatorsOnly;
  return findUnknownArgumentError(given, known);
}

/**
 * Creates what adds methods for operators, each with its known arguments: `get` by GET, `change` by POST. A change
 * returns its data, or a refusal of an argument, and is logged with its operator and object, without secrets.
 */
export function createOperatorMethods(addMethod: AddMethod, logger: Logger) {
  return {
    get: (url: string, name: string, known: readonly string[], answer: (given: Arguments) => unknown): void =>
      addMethod(['GET'], url, name, async (user, given) => {
        const fault = findFault(user, given, known);
        if (fault !== undefined) return fault;
        const found = await answer(given);
        return typeof found === 'object' && found !== null && isApiError(found) ? found : { data: found };
      }),
    post: (
      url: string,
      name: string,
      known: readonly string[],
      change: (callArguments: Arguments, user: User) => Promise<object>,
    ): void =>
      addMethod(['POST'], url, name, async (user, callArguments) => {
        const refusal = findFault(user, callArguments, known);
        if (refusal !== undefined) return refusal;
        try {
          const changed = await change(callArguments, user);
          if (isApiError(changed)) return changed;
          const { idApp, idUser, revoked }: { idApp?: unknown; idUser?: unknown; revoked?: unknown } = changed;
          logger.info({ operator: user.idUser, change: name, idApp, idUser, revoked }, 'access changed');
          return { data: changed };
        } catch (error) {
          return toRefusal(error);
        }
      }),
  };
}

/** A page of a list. `search` is in lower case; empty: everything. */
interface ListPage {
  readonly search: string;
  readonly offset: number;
  readonly limit: number;
}

const [fallbackLimit, mostLimit] = [100, 1000];

export function parsePage(given: Arguments): ListPage | ExportApiError {
  const offset = parseCount(given, 'offset', 0, 9_999_999);
  if (offset === undefined) return badRequest('Argument offset must be a whole number from 0');
  const limit = parseLimit(given, fallbackLimit, mostLimit);
  if (typeof limit !== 'number') return limit;
  return { search: (single(given, 'search') ?? '').toLowerCase(), offset, limit };
}

/** Returns a page of the items whose texts contain the search, and the number of all such items. */
export function takePage<T>(
  list: readonly T[],
  { search, offset, limit }: ListPage,
  textsOf: (item: T) => readonly (string | undefined)[],
): { readonly items: readonly T[]; readonly total: number } {
  const found = list.filter(
    (item) => search === '' || textsOf(item).some((text) => text?.toLowerCase().includes(search)),
  );
  return { items: found.slice(offset, offset + limit), total: found.length };
}

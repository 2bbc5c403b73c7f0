import type { User } from '../../access/access.ts';
import { isAppError } from '../../runtime/errors.ts';
import type { Logger } from '../../runtime/logger.ts';
import { type Arguments, quote } from '../api/arguments.ts';
import { badRequest, isRefusal, type Refusal } from '../api/envelope.ts';
import { type AddMethod, single } from '../api/methods-routes.ts';

const operatorsOnly: Refusal = { code: 403, detail: 'Operators only' };

/** An id of an app, an account, a project or a user; undefined for other texts. */
export function parseId(text: string | undefined): number | undefined {
  return text !== undefined && /^[1-9]\d{0,14}$/.test(text) ? Number(text) : undefined;
}

/** An id, or null for `none`; undefined for other texts. */
export function parseIdOrNone(text: string | undefined): number | null | undefined {
  return text === 'none' ? null : parseId(text);
}

/** A text of so many characters at most, without control characters; undefined for others and for none. */
export function parseLabel(text: string | undefined, most: number): string | undefined {
  return text !== undefined && text !== '' && text.length <= most && !/\p{Cc}/u.test(text) ? text : undefined;
}

/** What is wrong with a change that is asked for, as an answer; anything else is thrown. */
function toRefusal(error: unknown): Refusal {
  if (isAppError(error, 'not_found')) return { code: 404, detail: error.message };
  if (isAppError(error, 'usage') || isAppError(error, 'conflict')) return badRequest(error.message);
  throw error;
}

/** How operators' methods are added: the caller must be one, and may give the arguments that are named, and no others. */
export interface OperatorMethods {
  readonly look: (url: string, name: string, known: readonly string[], answer: (given: Arguments) => unknown) => void;
  /** `make` gives what is answered, or a refusal where an argument is wrong. */
  readonly change: (
    url: string,
    name: string,
    known: readonly string[],
    make: (given: Arguments, user: User) => Promise<object>,
  ) => void;
}

function findFault({ isOperator }: User, given: Arguments, known: readonly string[]): Refusal | undefined {
  if (!isOperator) return operatorsOnly;
  const unknown = [...given.keys()].find((name) => !known.includes(name));
  return unknown === undefined ? undefined : badRequest(`Unknown argument ${quote(unknown)}`);
}

/** Creates what adds them. A change is by POST alone, and is logged with who made it, and of what, never with a secret. */
export function createOperatorMethods(addMethod: AddMethod, logger: Logger): OperatorMethods {
  return {
    look: (url, name, known, answer) =>
      addMethod(['GET'], url, name, async (user, given) => {
        const fault = findFault(user, given, known);
        if (fault !== undefined) return fault;
        const found = await answer(given);
        return typeof found === 'object' && found !== null && isRefusal(found) ? found : { data: found };
      }),
    change: (url, name, known, change) =>
      addMethod(['POST'], url, name, async (user, given) => {
        const fault = findFault(user, given, known);
        if (fault !== undefined) return fault;
        try {
          const changed = await change(given, user);
          if (isRefusal(changed)) return changed;
          const { idApp, idUser, revoked } = changed as {
            readonly idApp?: string;
            readonly idUser?: string;
            readonly revoked?: string | readonly string[];
          };
          logger.info({ operator: user.idUser, change: name, idApp, idUser, revoked }, 'access changed');
          return { data: changed };
        } catch (error) {
          return toRefusal(error);
        }
      }),
  };
}

/** Which part of a list is wanted. */
interface ListPage {
  /** In lower case; empty: everything. */
  readonly search: string;
  readonly offset: number;
  readonly limit: number;
}

const fallbackLimit = 100;
const mostLimit = 1000;

/** Reads search, offset and limit, or says what is wrong with them. */
export function parsePage(given: Arguments): ListPage | Refusal {
  const read = (name: string, fallback: number): number => {
    if (!given.has(name)) return fallback;
    const text = single(given, name) ?? '';
    return /^\d{1,7}$/.test(text) ? Number(text) : Number.NaN;
  };
  const [offset, limit] = [read('offset', 0), read('limit', fallbackLimit)];
  if (Number.isNaN(offset)) return badRequest('Argument offset is how many are left out before the first');
  if (!(limit >= 1 && limit <= mostLimit)) return badRequest(`Argument limit must be from 1 to ${mostLimit}`);
  return { search: (single(given, 'search') ?? '').toLowerCase(), offset, limit };
}

/** Takes the part of a list whose texts have what is searched for; `total`: how many of them there are. */
export function takePage<T>(
  list: readonly T[],
  { search, offset, limit }: ListPage,
  textsOf: (item: T) => readonly (string | undefined)[],
): { readonly items: readonly T[]; readonly total: number } {
  const found =
    search === '' ? list : list.filter((item) => textsOf(item).some((text) => text?.toLowerCase().includes(search)));
  return { items: found.slice(offset, offset + limit), total: found.length };
}

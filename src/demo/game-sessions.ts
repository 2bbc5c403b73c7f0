import { createRandom, type Random } from './random.ts';

/** A body of `/v1/customEvent/` for a web app. */
interface CustomEventBody {
  /** Unix seconds. */
  readonly eventTimestamp: number;
  readonly customUserId: string;
  readonly lvid: string;
  readonly customEventName: string;
  readonly customEventParams: Readonly<Record<string, string>>;
  readonly ipv4: string;
  readonly userAgent: string;
  readonly connectionType: number;
  readonly adBlocker: number;
  readonly idGender?: number;
  readonly age?: number;
}

export interface GameSessionsOptions {
  /** The same seed and options make the same events. */
  readonly seed: number;
  readonly events: number;
  /** Exclusive end of the events, Unix seconds. */
  readonly until: number;
  readonly days: number;
}

interface Player {
  readonly identity: Omit<CustomEventBody, 'eventTimestamp' | 'customEventName' | 'customEventParams'>;
  readonly skill: number;
  readonly spending: number;
  level: number;
  coins: number;
}

interface Step {
  readonly name: string;
  readonly params: Record<string, string>;
  /** Time since the previous event, s. */
  readonly after: number;
}

const daySeconds = 86_400;
/** Limit of a session, so that the last one ends before `until`, s. */
const maxSessionSeconds = 2 * 3600;
const userAgents = [
  'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36',
  'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Safari/605.1.15',
  'Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101 Firefox/127.0',
  'Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Mobile Safari/537.36',
];
const offers = [
  { product: 'coins_100', price: '0.99', coins: 100 },
  { product: 'coins_550', price: '4.99', coins: 550 },
  { product: 'extra_lives', price: '1.99', coins: 0 },
  { product: 'season_pass', price: '9.99', coins: 200 },
];
const enemies = ['slime', 'bat', 'golem', 'dragon, elder', "trickster's ghost"];

/**
 * Generates the custom events of a browser game: players return over several days, play levels in sessions, and some of
 * them buy. Sessions come in the order of their start. Memory does not depend on the number of events.
 */
export function* generateGameSessions(options: GameSessionsOptions): Generator<CustomEventBody, void, void> {
  const random = createRandom(options.seed);
  const players = Array.from({ length: Math.max(1, Math.ceil(Math.sqrt(options.events) / 2)) }, (_, index) =>
    createPlayer(random, index),
  );
  const span = Math.max(0, options.days * daySeconds - maxSessionSeconds);
  const from = options.until - options.days * daySeconds;
  for (let madeEvents = 0; madeEvents < options.events;) {
    // Squared: few players play often.
    const player = players[Math.floor(random.next() ** 2 * players.length)] as Player;
    const start = from + Math.floor((span * madeEvents) / options.events);
    let elapsed = 0;
    for (const step of playSession(player, random)) {
      elapsed = Math.min(elapsed + step.after, maxSessionSeconds - 1);
      const { name: customEventName, params: customEventParams } = step;
      yield { eventTimestamp: start + elapsed, ...player.identity, customEventName, customEventParams };
      madeEvents += 1;
      if (madeEvents === options.events) return;
    }
  }
}

function createPlayer(random: Random, index: number): Player {
  const known = random.chance(0.6);
  return {
    identity: {
      customUserId: `player-${index + 1}`,
      lvid: random.hex(32),
      ipv4: `198.51.100.${random.integer(1, 254)}`,
      userAgent: random.pick(userAgents),
      connectionType: random.integer(0, 2),
      adBlocker: random.integer(0, 1),
      ...(known ? { idGender: random.integer(1, 2), age: random.integer(13, 70) } : {}),
    },
    skill: 0.35 + random.next() * 0.5,
    spending: random.chance(0.15) ? 0.25 : 0.01,
    level: 1,
    coins: 50,
  };
}

function* playSession(player: Player, random: Random): Generator<Step, void, void> {
  const session = random.hex(8);
  const levels = random.integer(1, 12);
  const begun = { session, level: String(player.level), coins: String(player.coins) };
  yield { name: 'session_start', params: begun, after: 0 };
  if (player.level === 1) {
    for (const step of ['move', 'jump', 'fight'])
      yield { name: 'tutorial_step', params: { session, step }, after: random.integer(5, 40) };
  }
  for (let played = 0; played < levels; played += 1) {
    yield* playLevel(player, session, random);
    if (random.chance(player.spending)) yield* buy(player, session, random);
  }
  const ended = { session, levels: String(levels), coins: String(player.coins) };
  yield { name: 'session_end', params: ended, after: random.integer(1, 60) };
}

function* playLevel(player: Player, session: string, random: Random): Generator<Step, void, void> {
  const level = String(player.level);
  yield { name: 'level_start', params: { session, level }, after: random.integer(2, 20) };
  for (let fights = random.integer(0, 4); fights > 0; fights -= 1) {
    yield {
      name: 'enemy_defeated',
      params: { session, level, enemy: random.pick(enemies), hits: String(random.integer(1, 9)) },
      after: random.integer(3, 45),
    };
  }
  const seconds = random.integer(20, 240);
  if (random.chance(player.skill)) {
    const coins = random.integer(5, 30);
    player.level += 1;
    player.coins += coins;
    yield {
      name: 'level_complete',
      params: { session, level, seconds: String(seconds), stars: String(random.integer(1, 3)), coins: String(coins) },
      after: seconds,
    };
  } else {
    yield {
      name: 'level_fail',
      params: { session, level, seconds: String(seconds), reason: random.pick(['time', 'fall', 'enemy']) },
      after: seconds,
    };
  }
}

function* buy(player: Player, session: string, random: Random): Generator<Step, void, void> {
  const offer = random.pick(offers);
  yield { name: 'shop_open', params: { session, coins: String(player.coins) }, after: random.integer(1, 15) };
  if (random.chance(0.4)) return;
  player.coins += offer.coins;
  yield {
    name: 'purchase',
    params: { session, product: offer.product, price: offer.price, currency: random.pick(['EUR', 'USD']) },
    after: random.integer(5, 60),
  };
}

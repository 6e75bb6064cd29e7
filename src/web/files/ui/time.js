// Times as people read them. The clock is that of the service, so that a wrong one here shows no wrong age; zone and form of a
// time of day are those of this browser.

import { COMMON } from "../words/common.js";

/** Both are slow to make, and shown in long lists. */
const TIME = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const SHORT_DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const LONG_DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });

/** Milliseconds by which the service's clock is ahead of this one. */
let ahead = 0;

/** @param {number} milliseconds */
export function setAhead(milliseconds) {
  ahead = milliseconds;
}

/** The time of the service, milliseconds. */
export function now() {
  return Date.now() + ahead;
}

/** A length of time in one or two units: `12 s`, `4 min`, `2 h 10 min`, `3 d 4 h`. @param {number} milliseconds */
export function duration(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return COMMON.seconds(seconds);
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return COMMON.minutes(minutes);
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return two(COMMON.hours(hours), hours < 10 && minutes % 60, COMMON.minutes);
  const days = Math.floor(hours / 24);
  return two(COMMON.days(days), days < 10 && hours % 24, COMMON.hours);
}

/** A unit, and what is left of it in the next smaller one. @param {string} first @param {number | false} rest @param {(count: number) => string} unit */
const two = (first, rest, unit) => (rest ? `${first} ${unit(rest)}` : first);

/** The age of a time, as `12 s ago`; `now` below two seconds. @param {string | number | null} time */
export function ago(time) {
  if (time === null) return "";
  const age = now() - (typeof time === "number" ? time : Date.parse(time));
  return age < 2000 ? COMMON.now : COMMON.ago(duration(age));
}

/** The time until then, as `2 d 3 h`; null once it is over. @param {string} time */
export function until(time) {
  const left = Date.parse(time) - now();
  return left > 0 ? duration(left) : null;
}

/** The time until then to the second, as `4:05`, and as `2 h 10 min` from an hour on; null once it is over. @param {string} time */
export function countdown(time) {
  const left = Math.ceil((Date.parse(time) - now()) / 1000);
  if (left <= 0) return null;
  return left < 3600 ? `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}` : duration(left * 1000);
}

/** The time of day, `14:05` or `2:05 PM`; with the day if it was not today. @param {string} time */
export function clock(time) {
  const date = new Date(time);
  const isToday = date.toDateString() === new Date(now()).toDateString();
  return isToday ? TIME.format(date) : `${SHORT_DAY.format(date)} ${TIME.format(date)}`;
}

/** A day, `26 Nov 2026`. @param {string} time */
export function day(time) {
  return LONG_DAY.format(new Date(time));
}

/** Calls `tick` each second while the page is visible, and at once when it becomes so. @param {() => void} tick */
export function everySecond(tick) {
  setInterval(() => document.hidden || tick(), 1000);
  document.addEventListener("visibilitychange", () => document.hidden || tick());
}

//! Commands of players in their team's chat: the settings of a paired server, the reading of a line, the rights of its
//! author, the answer, and the rates at which lines are said. Pure.

pub mod announced;
pub mod answers;
pub mod daylight;
pub mod decay;
pub mod desk;
pub mod device_order;
pub mod device_words;
pub mod durations;
pub mod election;
pub mod heard_lines;
pub mod memory;
pub mod reply;
pub mod settings;
pub mod speaker;
pub mod stillness;
pub mod turn_back;
pub mod vocabulary;

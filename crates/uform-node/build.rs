//! Tells the linker that Node-API's symbols are found when the addon is loaded.

fn main() {
    napi_build::setup();
}
